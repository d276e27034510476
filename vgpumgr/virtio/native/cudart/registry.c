/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables behind nvcc's registration calls: images, and by host address their kernels and variables. An image becomes
 * a module of a context when something of it is first used there.
 */
#include "registry.h"

#include <stdlib.h>

#include "runtime.h"

/* An image in one context. */
struct module {
	struct module *next;
	uint64_t context; /* rt_context_key() */
	CUcontext handle;
	CUmodule module;
};

/* A symbol in one context. */
struct binding {
	struct binding *next;
	uint64_t context;
	CUfunction function;
	CUdeviceptr address;
	size_t size;
};

enum symbol_kind { KERNEL, VARIABLE, MANAGED };

struct symbol {
	struct symbol *next; /* in its bucket */
	const void *host;
	const char *name;
	enum symbol_kind kind;
	struct image *image;
	struct binding *bindings;
};

struct image {
	struct image *next;
	const struct fatbin_wrapper *wrapper; /* NULL: of a library */
	CUlibrary library;
	bool has_managed;
	struct module *modules;
};

enum { BUCKETS = 4096 };

static struct image *images;
static struct symbol *buckets[BUCKETS];
/* A program passes the address that such a variable has: none, as we never give it one. */
static bool managed_variables;
/* Set when exit() has begun: by then the driver may have shut down, and everything goes with the process. */
static bool exiting;

static struct symbol **bucket_of(const void *host)
{
	uint64_t hash = (uint64_t)(uintptr_t)host * 0x9e3779b97f4a7c15u;

	return &buckets[hash >> 52];
}
_Static_assert(BUCKETS == 1 << (64 - 52), "the hash's upper bits number the buckets");

static struct symbol *find(const void *host)
{
	struct symbol *symbol = *bucket_of(host);

	while (symbol && symbol->host != host)
		symbol = symbol->next;
	return symbol;
}

static struct image *add_image(const struct fatbin_wrapper *wrapper, CUlibrary library)
{
	struct image *image = calloc(1, sizeof(*image));

	if (!image)
		return NULL;
	image->wrapper = wrapper;
	image->library = library;
	rt_lock();
	image->next = images;
	images = image;
	rt_unlock();
	return image;
}

struct image *registry_add_image(const struct fatbin_wrapper *wrapper)
{
	if (!wrapper || wrapper->magic != FATBIN_WRAPPER_MAGIC || wrapper->version < 1 || wrapper->version > 2)
		return NULL;
	return add_image(wrapper, NULL);
}

struct image *registry_add_library(CUlibrary library)
{
	return add_image(NULL, library);
}

/* Under the lock. */
static struct image *find_library(CUlibrary library)
{
	struct image *image = images;

	while (image && (image->wrapper || image->library != library))
		image = image->next;
	return image;
}

struct image *registry_find_library(CUlibrary library)
{
	struct image *image;

	rt_lock();
	image = find_library(library);
	rt_unlock();
	return image;
}

/* Under the lock. */
static void insert_symbol(struct image *image, const void *host, const char *name, enum symbol_kind kind)
{
	struct symbol *symbol = image ? calloc(1, sizeof(*symbol)) : NULL;

	/* There is no way to report it here; its first use finds no such symbol. */
	if (!symbol)
		return;
	*symbol = (struct symbol){ .host = host, .name = name, .kind = kind, .image = image };
	symbol->next = *bucket_of(host);
	*bucket_of(host) = symbol;
	image->has_managed |= kind == MANAGED;
	managed_variables |= kind == MANAGED;
}

static void add_symbol(struct image *image, const void *host, const char *name, enum symbol_kind kind)
{
	rt_lock();
	insert_symbol(image, host, name, kind);
	rt_unlock();
}

void registry_add_kernel(struct image *image, const void *host, const char *name)
{
	add_symbol(image, host, name, KERNEL);
}

/* Under one lock, as another thread may unload the library, and the name with it. */
CUresult registry_add_library_kernel(CUlibrary library, CUkernel kernel)
{
	const char *name = NULL;
	CUresult err;

	rt_lock();
	err = CU(cuKernelGetName, &name, kernel);
	if (err == CUDA_SUCCESS && !find(kernel))
		insert_symbol(find_library(library), kernel, name, KERNEL);
	rt_unlock();
	return err;
}

void registry_add_variable(struct image *image, const void *host, const char *name)
{
	add_symbol(image, host, name, VARIABLE);
}

void registry_add_managed(struct image *image, const void *host, const char *name)
{
	add_symbol(image, host, name, MANAGED);
}

static void free_bindings(struct symbol *symbol)
{
	while (symbol->bindings) {
		struct binding *binding = symbol->bindings;

		symbol->bindings = binding->next;
		free(binding);
	}
}

static void forget_symbols(const struct image *image)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		struct symbol **link = &buckets[i];

		while (*link) {
			struct symbol *symbol = *link;

			if (symbol->image != image) {
				link = &symbol->next;
				continue;
			}
			*link = symbol->next;
			free_bindings(symbol);
			free(symbol);
		}
	}
}

static void unload(struct module *module)
{
	CUcontext popped;

	if (!exiting && CU(cuCtxPushCurrent, module->handle) == CUDA_SUCCESS) {
		CU(cuModuleUnload, module->module);
		CU(cuCtxPopCurrent, &popped);
	}
	free(module);
}

void registry_remove_image(struct image *image)
{
	if (!image)
		return;
	rt_lock();
	for (struct image **link = &images; *link; link = &(*link)->next) {
		if (*link == image) {
			*link = image->next;
			break;
		}
	}
	forget_symbols(image);
	while (image->modules) {
		struct module *module = image->modules;

		image->modules = module->next;
		unload(module);
	}
	rt_unlock();
	free(image);
}

/* Forgets everything that was loaded into a context that is about to be destroyed. */
static void forget_context(uint64_t key)
{
	rt_lock();
	for (struct image *image = images; image; image = image->next) {
		for (struct module **link = &image->modules; *link;) {
			struct module *module = *link;

			if (module->context != key) {
				link = &module->next;
				continue;
			}
			*link = module->next;
			free(module);
		}
	}
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct symbol *symbol = buckets[i]; symbol; symbol = symbol->next) {
			for (struct binding **link = &symbol->bindings; *link;) {
				struct binding *binding = *link;

				if (binding->context != key) {
					link = &binding->next;
					continue;
				}
				*link = binding->next;
				free(binding);
			}
		}
	}
	rt_unlock();
}

API cudaError_t cudaDeviceReset(void)
{
	return rt_done(rt_reset(forget_context));
}

static void note_exit(void)
{
	exiting = true;
}

/* A fat-binary container's length: its header says its own and the body's. */
static size_t container_length(const void *container)
{
	const struct {
		uint32_t magic;
		uint16_t version, header_length;
		uint64_t body_length;
	} *header = container;

	return header->header_length + header->body_length;
}

/* Linked device code without machine code for this device: link what went into it again, for this one. */
static CUresult link_again(const struct fatbin_wrapper *wrapper, CUmodule *out)
{
	CUlinkState state;
	void *cubin = NULL;
	size_t size = 0;
	CUresult err = CU(cuLinkCreate, 0, NULL, NULL, &state);

	if (err != CUDA_SUCCESS)
		return err;
	for (const void *const *part = wrapper->extra; part && *part && err == CUDA_SUCCESS; part++)
		err = CU(cuLinkAddData, state, CU_JIT_INPUT_FATBINARY, (void *)*part, container_length(*part), NULL, 0,
			 NULL, NULL);
	if (err == CUDA_SUCCESS)
		err = CU(cuLinkComplete, state, &cubin, &size);
	if (err == CUDA_SUCCESS)
		err = CU(cuModuleLoadData, out, cubin);
	CU(cuLinkDestroy, state);
	return err;
}

static CUresult load(const struct fatbin_wrapper *wrapper, CUmodule *out)
{
	static bool registered;
	CUresult err;

	/* Registered after the program's own handlers, so it runs before they unregister their images. */
	if (!registered)
		registered = atexit(note_exit) == 0;
	err = CU(cuModuleLoadData, out, wrapper->container);
	if (err == CUDA_ERROR_NO_BINARY_FOR_GPU && wrapper->version == 2)
		return link_again(wrapper, out);
	return err;
}

/* Under the lock: the image's module in the current context. */
static cudaError_t module_of(struct image *image, uint64_t context, CUmodule *out)
{
	struct module *module = image->modules;
	cudaError_t error;

	while (module && module->context != context)
		module = module->next;
	if (module) {
		*out = module->module;
		return cudaSuccess;
	}
	/* Without its managed variables the code would read and write nothing, or memory of another owner. */
	if (image->has_managed)
		return cudaErrorNotSupported;
	module = calloc(1, sizeof(*module));
	if (!module)
		return cudaErrorMemoryAllocation;
	error = rt_error(CU(cuCtxGetCurrent, &module->handle));
	if (error == cudaSuccess)
		error = rt_error(load(image->wrapper, &module->module));
	if (error != cudaSuccess) {
		free(module);
		return error;
	}
	module->context = context;
	module->next = image->modules;
	image->modules = module;
	*out = module->module;
	return cudaSuccess;
}

static cudaError_t resolve(const struct symbol *symbol, CUmodule module, struct binding *binding)
{
	CUresult err;

	if (symbol->image->library)
		return rt_error(CU(cuKernelGetFunction, &binding->function, (CUkernel)symbol->host));
	if (symbol->kind == KERNEL) {
		err = CU(cuModuleGetFunction, &binding->function, module, symbol->name);
		return err == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : rt_error(err);
	}
	err = CU(cuModuleGetGlobal, &binding->address, &binding->size, module, symbol->name);
	return err == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : rt_error(err);
}

/* Under the lock: the symbol in the current context. */
static cudaError_t bind(struct symbol *symbol, uint64_t context, struct binding *out)
{
	struct binding *binding = symbol->bindings;
	CUmodule module = NULL;
	cudaError_t error = cudaSuccess;

	while (binding && binding->context != context)
		binding = binding->next;
	if (binding) {
		*out = *binding;
		return cudaSuccess;
	}
	if (!symbol->image->library)
		error = module_of(symbol->image, context, &module);
	if (error != cudaSuccess)
		return error;
	binding = calloc(1, sizeof(*binding));
	if (!binding)
		return cudaErrorMemoryAllocation;
	binding->context = context;
	error = resolve(symbol, module, binding);
	if (error != cudaSuccess) {
		free(binding);
		return error;
	}
	binding->next = symbol->bindings;
	symbol->bindings = binding;
	*out = *binding;
	return cudaSuccess;
}

/* What is no host address of ours may be a kernel that the program has from the driver: its handles are the runtime's, too. */
static cudaError_t driver_kernel(const void *kernel, struct binding *out)
{
	CUresult err = kernel ? CU(cuKernelGetFunction, &out->function, (CUkernel)kernel) : CUDA_ERROR_INVALID_HANDLE;

	if (err == CUDA_ERROR_INVALID_HANDLE || err == CUDA_ERROR_NOT_SUPPORTED) /* unknown, or a driver that has none */
		return cudaErrorInvalidDeviceFunction;
	return rt_error(err);
}

/* A symbol in the current context; `missing`: what an unknown host address is called. */
static cudaError_t lookup(const void *host, bool kernel, cudaError_t missing, struct binding *out)
{
	struct symbol *symbol;
	uint64_t context;
	cudaError_t error = rt_enter();

	if (error == cudaSuccess)
		error = rt_context_key(&context);
	if (error != cudaSuccess)
		return error;
	rt_lock();
	symbol = find(host);
	if (!host && !kernel && managed_variables)
		error = cudaErrorNotSupported;
	else if (!symbol && kernel)
		error = driver_kernel(host, out);
	else if (!symbol || (symbol->kind == KERNEL) != kernel)
		error = missing;
	else if (symbol->kind == MANAGED)
		error = cudaErrorNotSupported;
	else
		error = bind(symbol, context, out);
	rt_unlock();
	return error;
}

cudaError_t registry_function(const void *host, CUfunction *out)
{
	struct binding binding;
	cudaError_t error = lookup(host, true, cudaErrorInvalidDeviceFunction, &binding);

	if (error == cudaSuccess)
		*out = binding.function;
	return error;
}

cudaError_t registry_variable(const void *host, CUdeviceptr *address, size_t *size)
{
	struct binding binding;
	cudaError_t error = lookup(host, false, cudaErrorInvalidSymbol, &binding);

	if (error == cudaSuccess) {
		*address = binding.address;
		*size = binding.size;
	}
	return error;
}

/* Without the driver: a program asks before it needs one. */
static bool find_name(const void *host, const char **out)
{
	struct symbol *symbol;
	bool is;

	rt_lock();
	symbol = find(host);
	is = symbol && symbol->kind == KERNEL;
	if (is)
		*out = symbol->name;
	rt_unlock();
	return is;
}

cudaError_t registry_function_name(const void *host, const char **out)
{
	if (find_name(host, out))
		return cudaSuccess;
	if (!host || rt_enter() != cudaSuccess || CU(cuKernelGetName, out, (CUkernel)host) != CUDA_SUCCESS)
		return cudaErrorInvalidDeviceFunction;
	return cudaSuccess;
}

static bool is_bound(const struct symbol *symbol, CUfunction function)
{
	const struct binding *binding = symbol->kind == KERNEL ? symbol->bindings : NULL;

	while (binding && binding->function != function)
		binding = binding->next;
	return binding;
}

const void *registry_host_of(CUfunction function)
{
	const void *host = NULL;

	rt_lock();
	for (size_t i = 0; i < BUCKETS && !host; i++)
		for (const struct symbol *symbol = buckets[i]; symbol && !host; symbol = symbol->next)
			host = is_bound(symbol, function) ? symbol->host : NULL;
	rt_unlock();
	return host ? host : function;
}

bool registry_has_function(const void *host)
{
	const char *name;

	return find_name(host, &name);
}
