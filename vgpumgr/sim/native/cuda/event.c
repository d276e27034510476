/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a point in a stream, with the time at which it was reached. */
#include <stdlib.h>

#include "captures.h"

struct event {
	struct event *next; /* in the context's list */
	struct context *ctx;
	unsigned refs, flags;
	struct stream *stream; /* of the last record; NULL: never recorded */
	uint64_t seq, time_ns;
	struct capture_point captured; /* recorded last in a captured stream */
};

static void event_unref(struct event *e)
{
	if (--e->refs)
		return;
	if (e->stream)
		stream_unref(e->stream);
	capture_point_clear(&e->captured);
	free(e);
}

static void event_unlink(struct event *e)
{
	for (struct event **p = &e->ctx->events; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			break;
		}
	}
	handle_remove(e);
	event_unref(e);
}

void event_free_context(struct context *ctx)
{
	while (ctx->events)
		event_unlink(ctx->events);
}

static bool event_reached(const struct event *e)
{
	return !e->stream || e->stream->completed >= e->seq;
}

struct point {
	struct stream *stream;
	uint64_t seq;
};

void *event_point(CUevent handle)
{
	struct event *e = (struct event *)handle;
	struct point *p = handle_is(handle, HANDLE_EVENT) && e->stream ? malloc(sizeof(*p)) : NULL;

	if (p) {
		*p = (struct point){ e->stream, e->seq };
		e->stream->refs++;
	}
	return p;
}

bool event_point_passed(void *point)
{
	struct point *p = point;

	DRV_LOCKED();
	if (p->stream->completed < p->seq)
		return false;
	stream_unref(p->stream);
	free(p);
	return true;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	struct event *e;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = out ? cuda_check_event_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	DRV_LOCKED();
	if (handle_add(e, HANDLE_EVENT)) {
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*e = (struct event){ .ctx = ctx, .refs = 1, .flags = flags, .next = ctx->events };
	ctx->events = e;
	*out = (CUevent)e;
	return CUDA_SUCCESS;
}

/* Returns at once; a pending record is completed later. */
CUresult cuEventDestroy_v2(CUevent handle)
{
	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	event_unlink((struct event *)handle);
	return CUDA_SUCCESS;
}

struct record_op {
	struct op op;
	struct event *event;
};

static CUresult run_record(struct op *op)
{
	struct record_op *r = (struct record_op *)op;
	uint64_t now = clock_ns();

	DRV_LOCKED();
	/* recorded again meanwhile: only the last record counts */
	if (r->event->stream == op->stream && r->event->seq == op->seq)
		r->event->time_ns = now;
	return CUDA_SUCCESS;
}

static void release_record(struct op *op)
{
	event_unref(((struct record_op *)op)->event);
	free(op);
}

static CUresult submit_record(struct event *e, struct stream *s)
{
	struct record_op *r = calloc(1, sizeof(*r));
	CUresult result;

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct record_op){ { .run = run_record, .release = release_record }, e };
	e->refs++;
	result = queue_submit(s, &r->op);
	if (result != CUDA_SUCCESS)
		return result;
	s->refs++;
	capture_point_clear(&e->captured);
	if (e->stream)
		stream_unref(e->stream);
	e->stream = s;
	e->seq = s->submitted;
	return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags)
{
	struct event *e = (struct event *)handle;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_event_record_flags(flags);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->ctx != e->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	return s->capture ? capture_record(s, &e->captured) : submit_record(e, s);
}

CUresult cuEventRecord(CUevent handle, CUstream stream)
{
	return cuEventRecordWithFlags(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent handle)
{
	struct event *e = (struct event *)handle;

	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	r = capture_refuse_event(&e->captured);
	if (r != CUDA_SUCCESS)
		return r;
	if (e->ctx->error != CUDA_SUCCESS)
		return e->ctx->error;
	return event_reached(e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
	struct event *e = (struct event *)handle;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	drv_lock();
	r = handle_is(handle, HANDLE_EVENT) ? capture_refuse_event(&e->captured) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		r = e->stream ? queue_wait(e->stream, e->seq) : e->ctx->error;
	drv_unlock();
	context_flush_print(ctx);
	return r;
}

static CUresult elapsed(const struct event *start, const struct event *end, float *ms)
{
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->ctx != end->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!start->stream || !end->stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (start->ctx->error != CUDA_SUCCESS)
		return start->ctx->error;
	if (!event_reached(start) || !event_reached(end))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end->time_ns - start->time_ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	CONTEXT_ENTER(ctx);
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(start, HANDLE_EVENT) || !handle_is(end, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (((struct event *)start)->captured.capture || ((struct event *)end)->captured.capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	return elapsed((struct event *)start, (struct event *)end, ms);
}

static CUresult run_wait(struct op *op)
{
	(void)op;
	return CUDA_SUCCESS;
}

static void release_wait(struct op *op)
{
	free(op);
}

/* The wait is for the record that is the event's last one now. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
	struct event *e = (struct event *)handle;
	struct stream *s;
	struct op *op;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (e->captured.capture || (s->capture && e->stream))
		return capture_wait(s, &e->captured);
	if (event_reached(e))
		return CUDA_SUCCESS;
	op = calloc(1, sizeof(*op));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = (struct op){ .run = run_wait, .release = release_wait };
	if (op_depend(op, e->stream, e->seq)) {
		free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return queue_submit(s, op);
}
