/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: created and destroyed without a wait, under handles that the guest chooses. */
#include <pthread.h>

#include "captures.h"

enum { THREAD_STREAMS = 8 };

/* The per-thread default streams of this thread: ordinary blocking streams, one for each context that used one. */
static __thread struct {
	uint64_t context, id;
} mine[THREAD_STREAMS];
static __thread unsigned int next_mine;

static _Atomic uint64_t last_number = 2; /* 1 and 2 are the default streams' */

static CUresult create(uint64_t context, unsigned int flags, int priority, uint64_t *id)
{
	struct vg_cuStreamCreateWithPriority_request in = { .context = context, .flags = flags, .priority = priority };
	struct shim_object *o = shim_object_new(SHIM_STREAM, context, id);
	CUresult r;

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	in.phStream = *id;
	r = vg_send_cuStreamCreateWithPriority(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_STREAM, *id);
		return r;
	}
	o->stream.flags = flags;
	cuda_stream_attributes_init(&o->stream.attributes, priority);
	o->stream.number = atomic_fetch_add(&last_number, 1) + 1;
	shim_object_publish(o, *id);
	return CUDA_SUCCESS;
}

static CUresult per_thread(uint64_t context, uint64_t *id)
{
	CUresult r;

	for (int i = 0; i < THREAD_STREAMS; i++) {
		if (mine[i].context == context && shim_object_get(SHIM_STREAM, mine[i].id)) {
			*id = mine[i].id;
			return CUDA_SUCCESS;
		}
	}
	r = create(context, CU_STREAM_DEFAULT, 0, id);
	if (r != CUDA_SUCCESS)
		return r;
	mine[next_mine].context = context;
	mine[next_mine].id = *id;
	next_mine = (next_mine + 1) % THREAD_STREAMS;
	return CUDA_SUCCESS;
}

CUresult shim_stream(CUstream stream, uint64_t *context, uint64_t *id)
{
	struct shim_object *o;

	if (!stream || stream == CU_STREAM_LEGACY) {
		*id = 0;
		return CUDA_SUCCESS;
	}
	if (stream == CU_STREAM_PER_THREAD)
		return per_thread(*context, id);
	o = shim_object_get(SHIM_STREAM, (uint64_t)stream);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = o->context;
	*id = (uint64_t)stream;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	uint64_t context, id;
	struct shim_object *o;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = phStream ? cuda_check_stream_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_current_object(); /* priorities outside the range are clamped, as documented */
	if (o && priority > o->ctx.least_priority)
		priority = o->ctx.least_priority;
	if (o && priority < o->ctx.greatest_priority)
		priority = o->ctx.greatest_priority;
	r = create(context, flags, priority, &id);
	if (r == CUDA_SUCCESS)
		*phStream = (CUstream)id;
	return r;
}

SHIM_API CUresult cuStreamCreate(CUstream *phStream, unsigned int flags)
{
	return cuStreamCreateWithPriority(phStream, flags, 0);
}

SHIM_API CUresult cuStreamDestroy_v2(CUstream hStream)
{
	struct vg_cuStreamDestroy_v2_request in = { .hStream = (uint64_t)hStream };
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_STREAM, (uint64_t)hStream);
	if (!o || !shim_object_retire(o, (uint64_t)hStream))
		return CUDA_ERROR_INVALID_HANDLE;
	in.context = o->context;
	shim_capture_next_forget(0, in.hStream);
	r = vg_send_cuStreamDestroy_v2(&in);
	shim_capture_forget(0, in.hStream); /* its graph goes with it: not before */
	shim_object_recycle(SHIM_STREAM, (uint64_t)hStream);
	return r;
}

SHIM_API CUresult cuStreamDestroy(CUstream hStream)
{
	return cuStreamDestroy_v2(hStream);
}

SHIM_API CUresult cuStreamQuery(CUstream hStream)
{
	struct vg_cuStreamQuery_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.hStream);
	return r == CUDA_SUCCESS ? vg_send_cuStreamQuery(&in) : r;
}

SHIM_API CUresult cuStreamSynchronize(CUstream hStream)
{
	struct vg_cuStreamSynchronize_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.hStream);
	if (r == CUDA_SUCCESS)
		r = vg_send_cuStreamSynchronize(&in);
	return r == CUDA_SUCCESS ? shim_lost(in.context) : r;
}

/* What a stream is; a default stream has the properties of a plain one, and the attributes that were set. */
static CUresult look(CUstream stream, struct shim_object *found)
{
	uint64_t context, id;
	struct shim_object *o;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(stream, &context, &id);
	if (r != CUDA_SUCCESS)
		return r;
	found->context = context;
	found->stream.flags = CU_STREAM_DEFAULT;
	found->stream.attributes.priority = 0;
	found->stream.number = 1;
	o = id ? shim_object_get(SHIM_STREAM, id) : shim_object_get(SHIM_CONTEXT, context);
	if (o && !id)
		found->stream.attributes.priority = o->ctx.default_stream.priority;
	if (o && id) {
		found->stream.flags = o->stream.flags;
		found->stream.attributes.priority = o->stream.attributes.priority;
		found->stream.number = o->stream.number;
	}
	return CUDA_SUCCESS;
}

#define GETTER(name, type, value)                                                                                      \
	SHIM_API CUresult name(CUstream hStream, type *out)                                                            \
	{                                                                                                              \
		struct shim_object found;                                                                              \
		CUresult r = out ? look(hStream, &found) : CUDA_ERROR_INVALID_VALUE;                                   \
                                                                                                                       \
		if (r == CUDA_SUCCESS)                                                                                 \
			*out = value;                                                                                  \
		return r;                                                                                              \
	}                                                                                                              \
	SHIM_API CUresult name##_ptsz(CUstream hStream, type *out)                                                     \
	{                                                                                                              \
		return name(hStream ? hStream : CU_STREAM_PER_THREAD, out);                                            \
	}

GETTER(cuStreamGetPriority, int, found.stream.attributes.priority)
GETTER(cuStreamGetFlags, unsigned int, found.stream.flags)
GETTER(cuStreamGetId, unsigned long long, found.stream.number)
GETTER(cuStreamGetCtx, CUcontext, (CUcontext)found.context)

SHIM_API CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	struct shim_object found;
	CUresult r = device ? look(hStream, &found) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? cuCtxGetDevice_v2(device, (CUcontext)found.context) : r;
}

SHIM_API CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device)
{
	return cuStreamGetDevice(hStream ? hStream : CU_STREAM_PER_THREAD, device);
}
