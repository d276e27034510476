/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream can be asked. */
#include "cuda_sim.h"

/* The stream of a handle, with drv.lock held on success. */
static CUresult info_enter(CUstream handle, const void *out, struct stream **s)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	r = stream_get(ctx, handle, s);
	if (r != CUDA_SUCCESS)
		drv_unlock();
	return r;
}

#define STREAM_INFO(handle, out, value)                         \
	do {                                                    \
		struct stream *s;                               \
		CUresult r_ = info_enter(handle, out, &s);      \
		if (r_ != CUDA_SUCCESS)                         \
			return r_;                              \
		*(out) = (value);                               \
		drv_unlock();                                   \
		return CUDA_SUCCESS;                            \
	} while (0)

CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	STREAM_INFO(handle, out, (CUcontext)s->ctx);
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
	if (green)
		*green = NULL;
	STREAM_INFO(handle, out, (CUcontext)s->ctx);
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *out)
{
	STREAM_INFO(handle, out, s->ctx->dev->ordinal);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *out)
{
	STREAM_INFO(handle, out, s->flags);
}

CUresult cuStreamGetPriority(CUstream handle, int *out)
{
	STREAM_INFO(handle, out, s->priority);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
	STREAM_INFO(handle, out, s->id);
}
