/* SPDX-License-Identifier: Apache-2.0 */
/* Events: a point in a stream, with the time at which it was reached. */
#include <stdlib.h>

#include "captures.h"
#include "ipc.h"

struct event {
	struct event *next; /* in the context's list */
	struct context *ctx;
	unsigned refs, flags;
	struct stream *stream; /* of the last record; NULL: never recorded */
	uint64_t seq, time_ns;
	struct capture_point captured; /* recorded last in a captured stream */
	struct shared_event *shared;   /* other processes may have it, too */
};

static void event_unref(struct event *e)
{
	if (--e->refs)
		return;
	if (e->stream)
		stream_unref(e->stream);
	capture_point_clear(&e->captured);
	if (e->shared)
		shared_event_unref(e->shared);
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
	if (e->shared)
		return shared_event_reached(e->shared, shared_event_last(e->shared));
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

/* With drv.lock held. `shared` goes with it, also where it cannot be made. */
static CUresult make_event(struct context *ctx, unsigned flags, struct shared_event *shared, CUevent *out)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e || handle_add(e, HANDLE_EVENT)) {
		if (shared)
			shared_event_unref(shared);
		free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*e = (struct event){ .ctx = ctx, .refs = 1, .flags = flags, .next = ctx->events, .shared = shared };
	ctx->events = e;
	*out = (CUevent)e;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	struct shared_event *shared = NULL;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = out ? cuda_check_event_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	if (flags & CU_EVENT_INTERPROCESS && !(shared = shared_event_new()))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return make_event(ctx, flags, shared, out);
}

CUresult event_open(struct context *ctx, struct shared_event *shared, CUevent *out)
{
	DRV_LOCKED();
	return make_event(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, out);
}

/* One that has come from another process is that one's to hand on. */
CUresult event_shared(CUevent handle, uint64_t *id)
{
	const struct event *e = (const struct event *)handle;

	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_EVENT) || !e->shared || !shared_event_id(e->shared))
		return CUDA_ERROR_INVALID_HANDLE;
	*id = shared_event_id(e->shared);
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
	uint64_t shared; /* the record's number among all processes */
};

static CUresult run_record(struct op *op)
{
	struct record_op *r = (struct record_op *)op;
	uint64_t now = clock_ns();

	DRV_LOCKED();
	if (r->event->shared)
		shared_event_reach(r->event->shared, r->shared);
	/* recorded again meanwhile: only the last record counts */
	if (r->event->stream == op->stream && r->event->seq == op->seq)
		r->event->time_ns = now;
	return CUDA_SUCCESS;
}

/* One that never ran, because its context has an error, is nothing to wait for either. */
static void release_record(struct op *op)
{
	const struct record_op *r = (const struct record_op *)op;

	if (r->shared)
		shared_event_reach(r->event->shared, r->shared);
	event_unref(((struct record_op *)op)->event);
	free(op);
}

static CUresult submit_record(struct event *e, struct stream *s)
{
	struct record_op *r = calloc(1, sizeof(*r));
	CUresult result;

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct record_op){ { .run = run_record, .release = release_record }, e, 0 };
	if (e->shared)
		r->shared = shared_event_begin(e->shared);
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

/* For the last record of any process. Drops drv.lock meanwhile. */
static void wait_shared(struct event *e)
{
	struct shared_event *s = shared_event_ref(e->shared);
	uint64_t last = shared_event_last(s);

	drv_unlock();
	shared_event_wait(s, last);
	drv_lock();
	shared_event_unref(s);
}

CUresult cuEventSynchronize(CUevent handle)
{
	struct event *e = (struct event *)handle;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	drv_lock();
	r = handle_is(handle, HANDLE_EVENT) ? capture_refuse_event(&e->captured) : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS && e->shared)
		wait_shared(e);
	if (r == CUDA_SUCCESS && handle_is(handle, HANDLE_EVENT))
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

/* Within a process, what an operation depends on is enough. */
struct wait_op {
	struct op op;
	struct shared_event *shared;
	uint64_t record;
};

static CUresult run_wait(struct op *op)
{
	const struct wait_op *w = (const struct wait_op *)op;

	if (w->shared)
		shared_event_wait(w->shared, w->record);
	return CUDA_SUCCESS;
}

static void release_wait(struct op *op)
{
	struct wait_op *w = (struct wait_op *)op;

	if (w->shared)
		shared_event_unref(w->shared);
	free(w);
}

static CUresult submit_wait(struct stream *s, const struct event *e)
{
	struct wait_op *w = calloc(1, sizeof(*w));

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->op = (struct op){ .run = run_wait, .release = release_wait };
	if (e->shared) {
		w->shared = shared_event_ref(e->shared);
		w->record = shared_event_last(e->shared);
	} else if (op_depend(&w->op, e->stream, e->seq)) {
		free(w);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return queue_submit(s, &w->op);
}

/* The wait is for the record that is the event's last one now. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
	struct event *e = (struct event *)handle;
	struct stream *s;
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
	return event_reached(e) ? CUDA_SUCCESS : submit_wait(s, e);
}
