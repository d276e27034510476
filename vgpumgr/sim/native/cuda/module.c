/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of a context, and what the PTX interpreter needs of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "condition.h"

#include <cuda_log.h>

/* Memory of a pool is the devices' that the pool is for; that peers see each other's contexts is not about it. */
static bool may_use(struct context *ctx, const struct allocation *a)
{
	return a->pool ? pool_permits(a->pool, ctx->dev) : peer_permits(ctx, a->ctx_id);
}

/* What a kernel of this context may touch: its own device memory, that of its peers, what is mapped, and page-locked host memory. */
static void *translate(void *arg, uint64_t addr, uint64_t size, bool write, uint64_t *base, uint64_t *length)
{
	struct context *ctx = arg;
	struct allocation a;

	if (!vm_contains(addr, size, &a) || (a.kind == ALLOCATION_DEVICE && !may_use(ctx, &a)))
		return NULL;
	if (a.kind == ALLOCATION_MAPPED && !(a.access >> ctx->dev->ordinal & 1))
		return NULL;
	if (write && a.kind == ALLOCATION_REGISTERED && a.flags & CU_MEMHOSTREGISTER_READ_ONLY)
		return NULL;
	if (base)
		*base = a.addr;
	if (length)
		*length = a.size;
	return (void *)addr;
}

static uint64_t alloc_variable(void *arg, uint64_t size, uint64_t align)
{
	uint64_t addr;

	(void)align; /* never above the alignment of every allocation */
	if (vm_alloc(arg, size ? size : 1, true, &addr) != CUDA_SUCCESS)
		return 0;
	memset((void *)addr, 0, size); /* small pieces are used again */
	return addr;
}

static bool is_variable(const struct allocation *a)
{
	return a->of_module;
}

static void free_variable(void *arg, uint64_t addr)
{
	struct allocation a;

	(void)arg;
	vm_remove(addr, is_variable, &a);
}

static void print(void *arg, const char *text, size_t length)
{
	context_print(arg, text, length);
}

int functions_create(struct ptx_module *ptx, enum handle_kind kind, struct function **out, size_t *n)
{
	size_t count = ptx_module_kernel_count(ptx);
	struct function *f = calloc(count + 1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		f[i].kernel = ptx_module_kernel_at(ptx, i);
		f[i].carveout = -1;
		ptx_kernel_info(f[i].kernel, &f[i].info);
		if (handle_add(&f[i], kind)) {
			functions_destroy(f, i);
			return -ENOMEM;
		}
	}
	*out = f;
	*n = count;
	return 0;
}

void functions_destroy(struct function *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		handle_remove(&f[i]);
	free(f);
}

static CUresult module_enter(struct context *ctx, struct module *m)
{
	DRV_LOCKED();
	if (ctx->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (handle_add(m, HANDLE_MODULE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (functions_create(m->ptx, HANDLE_FUNCTION, &m->functions, &m->n_functions)) {
		handle_remove(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < m->n_functions; i++)
		m->functions[i].module = m;
	m->next = ctx->modules;
	ctx->modules = m;
	return CUDA_SUCCESS;
}

/* Functions of the device run time by which kernels launch kernels; said once, as the module is lost. */
static void tell_device_runtime(const char *message)
{
	static const char *const names[] = { "cudaCDP", "cudaLaunchDevice", "cudaGetParameterBuffer" };
	static bool told;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strstr(message, names[i])) {
			cuda_log(CU_LOG_LEVEL_ERROR, "kernels cannot launch kernels: %s", message);
			if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
				fprintf(stderr, "simulated GPU: kernels cannot launch kernels: %s\n", message);
		}
}

CUresult module_load_text(struct context *ctx, const char *text, size_t length, struct jit_log *log, struct module **out)
{
	struct ptx_host host = { ctx, translate, alloc_variable, free_variable, print, texture_image,
				 drv.checks ? check_describe : NULL, drv.checks ? check_written : NULL, condition_set };
	struct module *m = calloc(1, sizeof(*m));
	struct ptx_error error;
	CUresult r;

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->ctx = ctx;
	r = ptx_to_cuda(ptx_module_load(text, length, &host, &m->ptx, &error));
	if (r != CUDA_SUCCESS) {
		jit_error(log, error.message);
		if (error.status == PTX_UNRESOLVED)
			tell_device_runtime(error.message);
		free(m);
		return r;
	}
	r = module_enter(ctx, m);
	if (r != CUDA_SUCCESS) {
		ptx_module_unload(m->ptx);
		free(m);
		return r;
	}
	*out = m;
	return CUDA_SUCCESS;
}

void module_destroy(struct module *m)
{
	for (struct module **p = &m->ctx->modules; *p; p = &(*p)->next) {
		if (*p == m) {
			*p = m->next;
			break;
		}
	}
	handle_remove(m);
	functions_destroy(m->functions, m->n_functions);
	ptx_module_unload(m->ptx);
	free(m);
}

static CUresult load_image(CUmodule *out, const void *image, struct jit_log *log)
{
	struct module *m;
	char *text = NULL;
	size_t length;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = image_text(image, ctx->dev->info.cc_major * 10 + ctx->dev->info.cc_minor, &text, &length, log);
	if (r == CUDA_SUCCESS)
		r = jit_apply(log, &text, &length);
	if (r == CUDA_SUCCESS)
		r = module_load_text(ctx, text, length, log, &m);
	free(text);
	if (r == CUDA_SUCCESS)
		*out = (CUmodule)m;
	return r;
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	return load_image(out, image, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	return load_image(out, image, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n, CUjit_option *options, void **values)
{
	struct jit_log log;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = jit_options(n, options, values, &log);
	if (r != CUDA_SUCCESS)
		return r;
	r = load_image(out, image, &log);
	jit_finish(&log, values);
	return r;
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
	size_t length;
	void *data;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!path || !out)
		return CUDA_ERROR_INVALID_VALUE;
	r = image_read_file(path, &data, &length);
	if (r != CUDA_SUCCESS)
		return r;
	r = load_image(out, data, NULL);
	free(data);
	return r;
}

/* Modules of a library go with the library. */
CUresult cuModuleUnload(CUmodule handle)
{
	struct module *m = (struct module *)handle;
	CUresult r;

	CONTEXT_ENTER(ctx);
	drv_lock();
	r = handle_is(m, HANDLE_MODULE) && !m->library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	drv_unlock();
	if (r == CUDA_SUCCESS)
		r = context_drain(m->ctx);
	if (r != CUDA_SUCCESS)
		return r;
	context_flush_print(m->ctx);
	DRV_LOCKED();
	if (!handle_is(m, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	module_destroy(m);
	return CUDA_SUCCESS;
}

struct function *module_function(struct module *m, const char *name)
{
	for (size_t i = 0; i < m->n_functions; i++) {
		if (!strcmp(m->functions[i].info.name, name))
			return &m->functions[i];
	}
	return NULL;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
	CONTEXT_ENTER(ctx);
	if (!out || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUfunction)module_function((struct module *)handle, name);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	CONTEXT_ENTER(ctx);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned)((struct module *)handle)->n_functions;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n, CUmodule handle)
{
	struct module *m = (struct module *)handle;

	CONTEXT_ENTER(ctx);
	if (!functions || !n)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(m, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < n && i < m->n_functions; i++)
		functions[i] = (CUfunction)&m->functions[i];
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *addr, size_t *size, CUmodule handle, const char *name)
{
	uint64_t found, bytes;

	CONTEXT_ENTER(ctx);
	if (!name || (!addr && !size))
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ptx_module_variable(((struct module *)handle)->ptx, name, &found, &bytes))
		return CUDA_ERROR_NOT_FOUND;
	if (addr)
		*addr = found;
	if (size)
		*size = bytes;
	return CUDA_SUCCESS;
}

/* Modules are loaded whole and at once. */
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}
