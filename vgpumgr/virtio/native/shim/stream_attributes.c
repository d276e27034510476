/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of streams. What the device does with them is the host driver's, so each is sent there; how a thread waits
 * concerns this side alone.
 */
#include <pthread.h>

#include "shim.h"

/* Of what is kept. Never held while the worker is asked. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Where they are kept: the legacy default stream's with its context. */
static CUresult find(CUstream stream, uint64_t *context, uint64_t *id, struct cuda_stream_attributes **attributes)
{
	CUresult r = shim_enter(context);
	struct shim_object *o;

	if (r == CUDA_SUCCESS)
		r = shim_stream(stream, context, id);
	if (r != CUDA_SUCCESS)
		return r;
	o = *id ? shim_object_get(SHIM_STREAM, *id) : shim_object_get(SHIM_CONTEXT, *context);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	*attributes = *id ? &o->stream.attributes : &o->ctx.default_stream;
	return CUDA_SUCCESS;
}

/* As at a stream's creation, a priority outside the range is clamped. */
static int clamp_priority(uint64_t context, int priority)
{
	const struct shim_object *o = shim_object_get(SHIM_CONTEXT, context);

	if (!o)
		return priority;
	if (priority > o->ctx.least_priority)
		return o->ctx.least_priority;
	return priority < o->ctx.greatest_priority ? o->ctx.greatest_priority : priority;
}

static CUresult set(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	struct vg_stream_attribute_request in = { .attribute = (uint32_t)id };
	struct cuda_stream_attributes *kept, alone;
	CUstreamAttrValue sent = *value;
	CUresult r = find(stream, &in.context, &in.stream, &kept);

	if (r != CUDA_SUCCESS)
		return r;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		sent.priority = clamp_priority(in.context, sent.priority);
	r = cuda_stream_attribute_set(&alone, id, &sent);
	if (r == CUDA_SUCCESS)
		r = cuda_stream_attribute_get(&alone, id, &sent); /* nothing but the value: the rest is zero */
	in.value.data = &sent;
	in.value.length = sizeof(sent);
	if (r == CUDA_SUCCESS && id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
		r = vg_send_stream_attribute(&in);
	if (r != CUDA_SUCCESS)
		return r;
	/* another thread may set another one of the same stream meanwhile */
	pthread_mutex_lock(&lock);
	r = cuda_stream_attribute_set(kept, id, &sent);
	pthread_mutex_unlock(&lock);
	return r;
}

static CUresult get(const struct cuda_stream_attributes *kept, CUstreamAttrID id, CUstreamAttrValue *value)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = cuda_stream_attribute_get(kept, id, value);
	pthread_mutex_unlock(&lock);
	return r;
}

SHIM_API CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	return value ? set(hStream, attr, value) : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	return cuStreamSetAttribute(hStream ? hStream : CU_STREAM_PER_THREAD, attr, value);
}

SHIM_API CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	struct cuda_stream_attributes *kept;
	uint64_t context, id;
	CUresult r = value ? find(hStream, &context, &id, &kept) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? get(kept, attr, value) : r;
}

SHIM_API CUresult cuStreamGetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	return cuStreamGetAttribute(hStream ? hStream : CU_STREAM_PER_THREAD, attr, value);
}

/* Both are of one context, as documented. */
SHIM_API CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
	static const CUstreamAttrID all[] = CUDA_STREAM_ATTRIBUTES;
	struct cuda_stream_attributes *to, *from;
	uint64_t context, other, id;
	CUstreamAttrValue value;
	CUresult r = find(dst, &context, &id, &to);

	if (r == CUDA_SUCCESS)
		r = find(src, &other, &id, &from);
	if (r == CUDA_SUCCESS && context != other)
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && i < sizeof(all) / sizeof(*all); i++) {
		r = get(from, all[i], &value);
		if (r == CUDA_SUCCESS)
			r = set(dst, all[i], &value);
	}
	return r;
}

SHIM_API CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
	return cuStreamCopyAttributes(dst ? dst : CU_STREAM_PER_THREAD, src ? src : CU_STREAM_PER_THREAD);
}
