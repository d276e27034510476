/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries: images without a context. Kernels are known at once, from a copy of the module that lives in host memory and
 * never runs; each context gets a module of its own when it first needs one.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

struct library {
	char *text;
	size_t length;
	struct ptx_module *outline; /* never run */
	struct function *kernels;
	size_t n_kernels;
};

/* The outline's variables: plain host memory, whose address serves as device address. */
static uint64_t outline_alloc(void *ctx, uint64_t size, uint64_t align)
{
	(void)ctx;
	(void)align;
	return (uint64_t)calloc(1, size ? size : 1);
}

static void outline_free(void *ctx, uint64_t addr)
{
	(void)ctx;
	free((void *)addr);
}

static void *outline_translate(void *ctx, uint64_t addr, uint64_t size, bool write, uint64_t *base, uint64_t *length)
{
	(void)ctx;
	(void)write;
	if (base)
		*base = addr;
	if (length)
		*length = size;
	return (void *)addr;
}

static void outline_print(void *ctx, const char *text, size_t length)
{
	(void)ctx;
	(void)text;
	(void)length;
}

static void library_free(struct library *l)
{
	functions_destroy(l->kernels, l->n_kernels);
	if (l->outline)
		ptx_module_unload(l->outline);
	free(l->text);
	free(l);
}

static CUresult library_fill(struct library *l, const void *image, struct jit_log *log)
{
	static const struct ptx_host host = { NULL, outline_translate, outline_alloc, outline_free, outline_print };
	const struct device *dev = context_current() ? context_current()->dev : &drv.devices[0];
	struct ptx_error error;
	CUresult r;

	r = image_text(image, dev->info.cc_major * 10 + dev->info.cc_minor, &l->text, &l->length, log);
	if (r == CUDA_SUCCESS)
		r = jit_apply(log, &l->text, &l->length);
	if (r != CUDA_SUCCESS)
		return r;
	r = ptx_to_cuda(ptx_module_load(l->text, l->length, &host, &l->outline, &error));
	if (r != CUDA_SUCCESS)
		jit_error(log, error.message);
	return r;
}

static CUresult library_load(CUlibrary *out, const void *image, struct jit_log *log)
{
	struct library *l = calloc(1, sizeof(*l));
	CUresult r;

	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = library_fill(l, image, log);
	DRV_LOCKED();
	if (r == CUDA_SUCCESS && functions_create(l->outline, HANDLE_KERNEL, &l->kernels, &l->n_kernels))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && handle_add(l, HANDLE_LIBRARY))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		library_free(l);
		return r;
	}
	for (size_t i = 0; i < l->n_kernels; i++)
		l->kernels[i].library = l;
	*out = (CUlibrary)l;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jit, void **values, unsigned int n_jit,
			   CUlibraryOption *options, void **option_values, unsigned int n_options)
{
	struct jit_log log;
	CUresult r;

	DRIVER_CHECK();
	if (!out || !image || (n_options && (!options || !option_values)))
		return CUDA_ERROR_INVALID_VALUE;
	r = jit_options(n_jit, jit, values, &log);
	if (r != CUDA_SUCCESS)
		return r;
	r = library_load(out, image, &log);
	jit_finish(&log, values);
	return r;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit, void **values, unsigned int n_jit,
			       CUlibraryOption *options, void **option_values, unsigned int n_options)
{
	size_t length;
	void *data;
	CUresult r;

	DRIVER_CHECK();
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	r = image_read_file(path, &data, &length);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuLibraryLoadData(out, data, jit, values, n_jit, options, option_values, n_options);
	free(data);
	return r;
}

static struct module *find_module(struct library *l, struct context *ctx)
{
	for (struct module *m = ctx->modules; m; m = m->next) {
		if (m->library == l)
			return m;
	}
	return NULL;
}

CUresult library_module(struct library *l, struct context *ctx, struct module **out)
{
	static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
	CUresult r = CUDA_SUCCESS;

	/* one load at a time, so that a context gets one module; drv.lock is free meanwhile */
	pthread_mutex_lock(&loading);
	drv_lock();
	*out = find_module(l, ctx);
	drv_unlock();
	if (!*out)
		r = module_load_text(ctx, l->text, l->length, NULL, out);
	if (r == CUDA_SUCCESS) {
		drv_lock();
		(*out)->library = l;
		drv_unlock();
	}
	pthread_mutex_unlock(&loading);
	return r;
}

static struct module *any_module(struct library *l)
{
	struct module *m = NULL;

	for (struct context *ctx = drv.contexts; ctx && !m; ctx = ctx->next)
		m = find_module(l, ctx);
	return m;
}

/* A kernel may still run: its context's work is waited for, context by context. */
CUresult cuLibraryUnload(CUlibrary handle)
{
	struct library *l = (struct library *)handle;
	struct module *m;

	DRIVER_CHECK();
	drv_lock();
	if (!handle_is(l, HANDLE_LIBRARY)) {
		drv_unlock();
		return CUDA_ERROR_INVALID_HANDLE;
	}
	handle_remove(l);
	while ((m = any_module(l))) {
		struct context *ctx = m->ctx;

		ctx->refs++;
		drv_unlock();
		context_drain(ctx);
		drv_lock();
		m = find_module(l, ctx);
		if (m)
			module_destroy(m);
		context_unref(ctx);
	}
	library_free(l);
	drv_unlock();
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
	struct library *l = (struct library *)handle;

	DRIVER_CHECK();
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(l, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < l->n_kernels; i++) {
		if (!strcmp(l->kernels[i].info.name, name)) {
			*out = (CUkernel)&l->kernels[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
	DRIVER_CHECK();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = (unsigned)((struct library *)handle)->n_kernels;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n, CUlibrary handle)
{
	struct library *l = (struct library *)handle;

	DRIVER_CHECK();
	if (!kernels)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(l, HANDLE_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < n && i < l->n_kernels; i++)
		kernels[i] = (CUkernel)&l->kernels[i];
	return CUDA_SUCCESS;
}

static CUresult enter_module(CUlibrary handle, struct module **out)
{
	CONTEXT_ENTER(ctx);
	drv_lock();
	bool known = handle_is(handle, HANDLE_LIBRARY);
	drv_unlock();
	return known ? library_module((struct library *)handle, ctx, out) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
	struct module *m;
	CUresult r = enter_module(handle, &m);

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = (CUmodule)m;
	return r;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *addr, size_t *size, CUlibrary handle, const char *name)
{
	struct module *m;
	CUresult r = enter_module(handle, &m);

	return r == CUDA_SUCCESS ? cuModuleGetGlobal_v2(addr, size, (CUmodule)m, name) : r;
}

/* The devices have no managed memory, so no library has managed variables. */
CUresult cuLibraryGetManaged(CUdeviceptr *addr, size_t *size, CUlibrary handle, const char *name)
{
	DRIVER_CHECK();
	if (!name || (!addr && !size))
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	return handle_is(handle, HANDLE_LIBRARY) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
