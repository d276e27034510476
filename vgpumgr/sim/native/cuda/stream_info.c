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
	STREAM_INFO(handle, out, s->attributes.priority);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
	STREAM_INFO(handle, out, s->id);
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *out)
{
	struct stream *s;
	CUresult r = info_enter(handle, out, &s);

	if (r != CUDA_SUCCESS)
		return r;
	r = cuda_stream_attribute_get(&s->attributes, id, out);
	drv_unlock();
	return r;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	struct stream *s;
	CUresult r = info_enter(handle, value, &s);
	CUstreamAttrValue clamped;

	if (r != CUDA_SUCCESS)
		return r;
	clamped = *value;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		clamped.priority = stream_clamp_priority(clamped.priority);
	r = cuda_stream_attribute_set(&s->attributes, id, &clamped);
	drv_unlock();
	return r;
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
	struct stream *source, *target;
	CUresult r = info_enter(to, &to, &target);

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_get(target->ctx, from, &source);
	if (r == CUDA_SUCCESS && source->ctx != target->ctx)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		target->attributes = source->attributes;
	drv_unlock();
	return r;
}
