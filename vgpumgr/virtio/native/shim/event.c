/* SPDX-License-Identifier: Apache-2.0 */
/* Events. A completed event is remembered as such until it is recorded again; "done" is never guessed. */
#include "captures.h"

CUresult shim_event(CUevent event, uint64_t *context, uint64_t *id)
{
	(void)context;
	*id = (uint64_t)event;
	return shim_object_get(SHIM_EVENT, *id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SHIM_API CUresult cuEventCreate(CUevent *phEvent, unsigned int flags)
{
	struct vg_cuEventCreate_request in = { .Flags = flags };
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = phEvent ? cuda_check_event_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_EVENT, in.context, &in.phEvent);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_cuEventCreate(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_EVENT, in.phEvent);
		return r;
	}
	if (flags & CU_EVENT_INTERPROCESS)
		shim_ipc_begin();
	o->event.flags = flags;
	atomic_store(&o->event.records, 0);
	atomic_store(&o->event.done, 0);
	shim_object_publish(o, in.phEvent);
	*phEvent = (CUevent)in.phEvent;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuEventDestroy_v2(CUevent hEvent)
{
	struct vg_cuEventDestroy_v2_request in = { .hEvent = (uint64_t)hEvent };
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_EVENT, in.hEvent);
	if (!o || !shim_object_retire(o, in.hEvent))
		return CUDA_ERROR_INVALID_HANDLE;
	in.context = o->context;
	r = vg_send_cuEventDestroy_v2(&in);
	shim_object_recycle(SHIM_EVENT, in.hEvent);
	return r;
}

SHIM_API CUresult cuEventDestroy(CUevent hEvent)
{
	return cuEventDestroy_v2(hEvent);
}

SHIM_API CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	struct vg_cuEventRecordWithFlags_request in = { .hEvent = (uint64_t)hEvent, .flags = flags };
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = cuda_check_event_record_flags(flags);
	if (r == CUDA_SUCCESS && flags)
		r = CUDA_ERROR_NOT_SUPPORTED; /* only means something while a graph is captured */
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.hStream);
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_EVENT, in.hEvent);
	if (!o || o->context != in.context)
		return CUDA_ERROR_INVALID_HANDLE;
	atomic_fetch_add(&o->event.records, 1);
	r = vg_send_cuEventRecordWithFlags(&in);
	return r == CUDA_SUCCESS && o->event.flags & CU_EVENT_INTERPROCESS ? shim_ipc_settle(in.context) : r;
}

SHIM_API CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return cuEventRecordWithFlags(hEvent, hStream, 0);
}

SHIM_API CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	return cuEventRecordWithFlags(hEvent, hStream ? hStream : CU_STREAM_PER_THREAD, 0);
}

static CUresult find(CUevent event, struct shim_object **object, uint32_t *record, bool *done)
{
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	*object = shim_object_get(SHIM_EVENT, (uint64_t)event);
	if (!*object)
		return CUDA_ERROR_INVALID_HANDLE;
	*record = atomic_load(&(*object)->event.records);
	/* another process may have recorded it since */
	*done = !((*object)->event.flags & CU_EVENT_INTERPROCESS) && atomic_load(&(*object)->event.done) == *record + 1;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuEventQuery(CUevent hEvent)
{
	struct vg_cuEventQuery_request in = { .hEvent = (uint64_t)hEvent };
	struct shim_object *o;
	uint32_t record;
	bool done;
	CUresult r = shim_capture_safe();

	if (r == CUDA_SUCCESS)
		r = find(hEvent, &o, &record, &done);
	if (r != CUDA_SUCCESS || done)
		return r;
	in.context = o->context;
	r = vg_send_cuEventQuery(&in);
	if (r == CUDA_SUCCESS)
		atomic_store(&o->event.done, record + 1);
	return r;
}

/* Always asks: deferred errors surface at a synchronise, so a remembered completion is not enough. */
SHIM_API CUresult cuEventSynchronize(CUevent hEvent)
{
	struct vg_cuEventSynchronize_request in = { .hEvent = (uint64_t)hEvent };
	struct shim_object *o;
	uint32_t record;
	bool done;
	CUresult r = shim_capture_safe();

	if (r == CUDA_SUCCESS)
		r = find(hEvent, &o, &record, &done);
	if (r != CUDA_SUCCESS)
		return r;
	in.context = o->context;
	r = vg_send_cuEventSynchronize(&in);
	if (r == CUDA_SUCCESS)
		atomic_store(&o->event.done, record + 1);
	return r == CUDA_SUCCESS ? shim_lost(in.context) : r;
}

/* Streams wait for events of their own device by themselves; for those of another one, this thread waits. */
static CUresult wait_here(uint64_t context, uint64_t stream, uint64_t event)
{
	struct shim_object *o = shim_object_get(SHIM_EVENT, event);
	struct vg_cuEventSynchronize_request in = { .context = o ? o->context : 0, .hEvent = event };
	CUresult r = SHIM_CAPTURE_REFUSE(context, stream, "an event of another device in a captured stream");

	if (r == CUDA_SUCCESS && !o)
		r = CUDA_ERROR_INVALID_HANDLE;
	return r == CUDA_SUCCESS ? vg_send_cuEventSynchronize(&in) : r;
}

SHIM_API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct vg_cuStreamWaitEvent_request in = { .Flags = Flags };
	const struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.hStream);
	if (r == CUDA_SUCCESS)
		r = shim_event(hEvent, &in.context, &in.hEvent);
	if (r == CUDA_SUCCESS && Flags > 1)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (shim_channel_of(in.hEvent) != shim_channel_of(in.context))
		return wait_here(in.context, in.hStream, in.hEvent);
	r = vg_send_cuStreamWaitEvent(&in);
	o = shim_object_get(SHIM_EVENT, in.hEvent);
	/* for a record that was made before this returns, and for no later one of another process */
	return r == CUDA_SUCCESS && o && o->event.flags & CU_EVENT_INTERPROCESS ? shim_ipc_settle(in.context) : r;
}

SHIM_API CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
