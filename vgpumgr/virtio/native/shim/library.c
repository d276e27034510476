/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries are lowered onto modules: a library keeps its image, and becomes a module in each context that uses it.
 * Nothing of this crosses the wire by itself.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/*
 * Below 8: a handle with bit 63 set is no address that a program can have, and bindings of languages with signed
 * integers only refuse it.
 */
enum { LOCAL_TAG = 100, LOADS = 64 };
_Static_assert(LOCAL_TAG > 99 && LOCAL_TAG < 128, "a tag of their own");

struct library {
	uint64_t id;
	struct library *next;
	void *image;
	struct {
		uint64_t context, module;
	} loads[LOADS];
};

struct kernel {
	uint64_t id;
	struct kernel *next;
	struct library *library;
	char *name;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct library *libraries;
static struct kernel *kernels;
static uint32_t last;

bool shim_is_kernel(const void *handle)
{
	return vg_handle_tag((uint64_t)handle) == LOCAL_TAG;
}

static struct library *find_library(CUlibrary handle)
{
	struct library *l = libraries;

	while (l && l->id != (uint64_t)handle)
		l = l->next;
	return l;
}

static struct kernel *find_kernel(CUkernel handle)
{
	struct kernel *k = kernels;

	while (k && k->id != (uint64_t)handle)
		k = k->next;
	return k;
}

/* Under the lock: the library's module in the current context, loaded if need be. */
static CUresult module_of(struct library *l, CUmodule *module)
{
	uint64_t context = shim_current();
	int at = -1;
	CUresult r;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (int i = LOADS - 1; i >= 0; i--) {
		if (!shim_object_get(SHIM_MODULE, l->loads[i].module)) {
			at = i;
		} else if (l->loads[i].context == context) {
			*module = (CUmodule)l->loads[i].module;
			return CUDA_SUCCESS;
		}
	}
	if (at < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = cuModuleLoadDataEx(module, l->image, 0, NULL, NULL);
	if (r != CUDA_SUCCESS)
		return r;
	l->loads[at].context = context;
	l->loads[at].module = (uint64_t)*module;
	return CUDA_SUCCESS;
}

static CUresult copy_image(const void *image, void **copy)
{
	const void *start;
	size_t length = shim_image_length(image, &start);

	if (!length)
		return CUDA_ERROR_INVALID_IMAGE;
	*copy = malloc(length);
	if (!*copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(*copy, start, length);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
				    void **jitOptionsValues, unsigned int numJitOptions,
				    CUlibraryOption *libraryOptions, void **libraryOptionValues,
				    unsigned int numLibraryOptions)
{
	struct library *l;
	CUresult r = shim_ready();

	/* the options change how code is made, not what it does; the image is always kept */
	(void)libraryOptionValues;
	if (r == CUDA_SUCCESS && (!library || !code || (numLibraryOptions && !libraryOptions)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = cuda_check_jit_options(numJitOptions, jitOptions, jitOptionsValues);
	if (r != CUDA_SUCCESS)
		return r;
	l = calloc(1, sizeof(*l));
	r = l ? copy_image(code, &l->image) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		free(l);
		return r;
	}
	pthread_mutex_lock(&lock);
	l->id = vg_handle_make(LOCAL_TAG, 1, ++last);
	l->next = libraries;
	libraries = l;
	pthread_mutex_unlock(&lock);
	*library = (CUlibrary)l->id;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
					void **jitOptionsValues, unsigned int numJitOptions,
					CUlibraryOption *libraryOptions, void **libraryOptionValues,
					unsigned int numLibraryOptions)
{
	void *image = NULL;
	CUresult r = fileName ? shim_file(fileName, &image, NULL) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = cuLibraryLoadData(library, image, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
				      libraryOptionValues, numLibraryOptions);
	free(image);
	return r;
}

static void drop_kernels(struct library *l)
{
	struct kernel **at = &kernels, *k;

	while ((k = *at)) {
		if (k->library != l) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k->name);
		free(k);
	}
}

SHIM_API CUresult cuLibraryUnload(CUlibrary library)
{
	struct library **at = &libraries, *l;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->id != (uint64_t)library)
		at = &(*at)->next;
	l = *at;
	if (l) {
		*at = l->next;
		drop_kernels(l);
	}
	pthread_mutex_unlock(&lock);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < LOADS; i++)
		if (l->loads[i].module)
			cuModuleUnload((CUmodule)l->loads[i].module);
	free(l->image);
	free(l);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	struct library *l;
	CUresult r = shim_enter(&(uint64_t){ 0 });

	if (r == CUDA_SUCCESS && !pMod)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	l = find_library(library);
	r = l ? module_of(l, pMod) : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&lock);
	return r;
}

SHIM_API CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUmodule module;
	CUresult r = cuLibraryGetModule(&module, library);

	return r == CUDA_SUCCESS ? cuModuleGetGlobal_v2(dptr, bytes, module, name) : r;
}

/* The channel has no managed variables: a library's are plain ones there, which only the device has. */
SHIM_API CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	CUdeviceptr found;
	CUresult r = name && (dptr || bytes) ? cuLibraryGetGlobal(&found, NULL, library, name) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		return shim_unsupported("cuLibraryGetManaged", &told);
	return r;
}

static struct kernel *new_kernel(struct library *l, const char *name)
{
	struct kernel *k = kernels;

	while (k && (k->library != l || strcmp(k->name, name)))
		k = k->next;
	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k || !(k->name = strdup(name))) {
		free(k);
		return NULL;
	}
	k->id = vg_handle_make(LOCAL_TAG, 1, ++last);
	k->library = l;
	k->next = kernels;
	kernels = k;
	return k;
}

/* With a current context the name is looked up at once, so a wrong one fails here, as it should. */
SHIM_API CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct library *l;
	struct kernel *k;
	CUmodule module;
	CUfunction function;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!pKernel || !name || !*name))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	l = find_library(library);
	r = l ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS && shim_current())
		r = module_of(l, &module);
	if (r == CUDA_SUCCESS && shim_current())
		r = cuModuleGetFunction(&function, module, name);
	if (r == CUDA_SUCCESS) {
		k = new_kernel(l, name);
		r = k ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		*pKernel = k ? (CUkernel)k->id : NULL;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult shim_kernel_function(CUkernel kernel, CUfunction *function)
{
	struct kernel *k;
	CUmodule module;
	CUresult r;

	pthread_mutex_lock(&lock);
	k = find_kernel(kernel);
	r = k ? module_of(k->library, &module) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		r = cuModuleGetFunction(function, module, k->name);
	pthread_mutex_unlock(&lock);
	return r;
}

SHIM_API CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	CUresult r = shim_enter(&(uint64_t){ 0 });

	if (r == CUDA_SUCCESS && !pFunc)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? shim_kernel_function(kernel, pFunc) : r;
}

SHIM_API CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	struct kernel *k;

	if (!pLib)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	k = find_kernel(kernel);
	if (k)
		*pLib = (CUlibrary)k->library->id;
	pthread_mutex_unlock(&lock);
	return k ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SHIM_API CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	struct kernel *k;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	k = find_kernel(hfunc);
	if (k)
		*name = k->name;
	pthread_mutex_unlock(&lock);
	return k ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
