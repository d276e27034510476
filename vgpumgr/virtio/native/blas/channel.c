/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the host: the guest's libcuda.so.1. */
#include <dlfcn.h>

#include "blas.h"

#if defined(__x86_64__)
/* As in the runtime library: loads on glibc 2.28, too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

static struct blas_channel channel;
static bool found;

static void find(void)
{
	/* Never closed: its threads outlive any use of ours. */
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		return;
	*(void **)&channel.open = dlsym(library, "vgpumgr_math_open");
	*(void **)&channel.create = dlsym(library, "vgpumgr_math_create");
	*(void **)&channel.destroy = dlsym(library, "vgpumgr_math_destroy");
	*(void **)&channel.call = dlsym(library, "vgpumgr_math_call");
	*(void **)&channel.alive = dlsym(library, "vgpumgr_math_alive");
	*(void **)&channel.unsupported = dlsym(library, "vgpumgr_call_unsupported");
	*(void **)&channel.pointer_attribute = dlsym(library, "cuPointerGetAttribute");
	*(void **)&channel.copy = dlsym(library, "cuMemcpy");
	*(void **)&channel.copy_async = dlsym(library, "cuMemcpyAsync");
	*(void **)&channel.copy_2d = dlsym(library, "cuMemcpy2DUnaligned_v2");
	*(void **)&channel.copy_2d_async = dlsym(library, "cuMemcpy2DAsync_v2");
	found = channel.open && channel.create && channel.destroy && channel.call && channel.alive;
}

const struct blas_channel *blas_channel(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return found ? &channel : NULL;
}

int blas_status(int result)
{
	switch (result) {
	case 0:   /* CUDA_SUCCESS */
		return BLAS_OK;
	case 2:   /* CUDA_ERROR_OUT_OF_MEMORY */
		return BLAS_ALLOC_FAILED;
	case 801: /* CUDA_ERROR_NOT_SUPPORTED */
		return BLAS_NOT_SUPPORTED;
	case 400: /* CUDA_ERROR_INVALID_HANDLE */
		return BLAS_INVALID_VALUE;
	case 3: case 100: case 201: case 709: /* no driver, no device, no context any more */
		return BLAS_NOT_INITIALIZED;
	default:
		return BLAS_EXECUTION_FAILED;
	}
}

int blas_unsupported(const char *name, atomic_flag *told)
{
	const struct blas_channel *c = blas_channel();

	if (c && c->unsupported)
		c->unsupported(name, told);
	return BLAS_NOT_SUPPORTED;
}

struct blas_handle *blas_handle(void *handle)
{
	struct blas_handle *h = handle;

	if (!h || h->magic != BLAS_MAGIC || !blas_channel() || !blas_channel()->alive(h->id))
		return NULL;
	return h;
}
