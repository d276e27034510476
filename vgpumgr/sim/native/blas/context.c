/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each CUDA context has for these libraries: a kernel that touches an address, and the word that says which. It stays
 * as long as the context, as graphs that outlive every handle use it. A context's id is never used twice.
 */
#include <pthread.h>
#include <stdlib.h>

#include "blas.h"

static const char touch_ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry vgpumgr_blas_touch(.param .u64 word)\n{\n"
	"\t.reg .u64 %rd<3>;\n\t.reg .u32 %r<2>;\n"
	"\tld.param.u64 %rd1, [word];\n"
	"\tld.volatile.global.u64 %rd2, [%rd1];\n"
	"\tld.volatile.global.u8 %r1, [%rd2];\n\tret;\n}\n";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_context *contexts;

static int fill(struct bl_context *c)
{
	CUmodule module;
	void *word;

	if (bl_driver.cuModuleLoadData(&module, touch_ptx) != CUDA_SUCCESS ||
	    bl_driver.cuModuleGetFunction(&c->touch, module, "vgpumgr_blas_touch") != CUDA_SUCCESS)
		return BL_NOT_INITIALIZED;
	if (bl_driver.cuMemHostAlloc(&word, sizeof(*c->word), CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
		return BL_ALLOC_FAILED;
	c->word = word;
	*c->word = (uint64_t)word;
	return BL_SUCCESS;
}

/* The first work of a context may be in a capture, which none of this is part of. */
static int fill_aside(struct bl_context *c)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int status;

	if (bl_driver.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
		return BL_NOT_INITIALIZED;
	status = fill(c);
	bl_driver.cuThreadExchangeStreamCaptureMode(&mode);
	return status;
}

static int add(CUcontext handle, unsigned long long id, struct bl_context **out)
{
	struct bl_context *c = calloc(1, sizeof *c);
	int status;

	if (!c)
		return BL_ALLOC_FAILED;
	c->handle = handle;
	c->id = id;
	status = fill_aside(c);
	if (status != BL_SUCCESS) {
		free(c);
		return status;
	}
	c->next = contexts;
	contexts = c;
	*out = c;
	return BL_SUCCESS;
}

static int enter_any(CUcontext *handle)
{
	if (bl_driver.cuCtxGetCurrent(handle) != CUDA_SUCCESS)
		return BL_NOT_INITIALIZED;
	if (*handle)
		return BL_SUCCESS;
	if (bl_driver.cuDevicePrimaryCtxRetain(handle, 0) != CUDA_SUCCESS || bl_driver.cuCtxSetCurrent(*handle) != CUDA_SUCCESS)
		return BL_NOT_INITIALIZED;
	return BL_SUCCESS;
}

int bl_context_current(struct bl_context **out)
{
	unsigned long long id;
	CUcontext handle;
	int status = bl_driver_load();

	/* a handle may be the other library's: nothing of this one has been called then */
	if (status == BL_SUCCESS)
		status = bl_runner_start();
	if (status == BL_SUCCESS)
		status = enter_any(&handle);
	if (status != BL_SUCCESS)
		return status;
	if (bl_driver.cuCtxGetId(handle, &id) != CUDA_SUCCESS)
		return BL_NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	for (*out = contexts; *out && (*out)->id != id; *out = (*out)->next)
		;
	if (!*out)
		status = add(handle, id, out);
	pthread_mutex_unlock(&lock);
	return status;
}
