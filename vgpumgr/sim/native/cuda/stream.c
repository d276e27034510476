/* SPDX-License-Identifier: Apache-2.0 */
/* Streams as a program sees them: creation, waiting, host functions. */
#include <stdlib.h>

#include "captures.h"

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

/* The calling thread's own default streams, one for each context that it used them in. */
struct own_stream {
	struct own_stream *next;
	struct stream *stream;
};
static _Thread_local struct own_stream *own_streams;
static _Thread_local int per_thread_depth;

void default_stream_per_thread(int change)
{
	per_thread_depth += change;
}

bool stream_is_legacy(CUstream handle)
{
	return handle == CU_STREAM_LEGACY || (!handle && !per_thread_depth);
}

/* At the thread's end. */
static void forget_thread(void)
{
	drv_lock();
	while (own_streams) {
		struct own_stream *o = own_streams;

		own_streams = o->next;
		if (!o->stream->closing)
			queue_close(o->stream);
		stream_unref(o->stream);
		free(o);
	}
	drv_unlock();
}

static struct stream *own_stream(struct context *ctx)
{
	struct own_stream *o;

	for (o = own_streams; o; o = o->next) {
		if (o->stream->ctx == ctx)
			return o->stream;
	}
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->stream = queue_create(ctx, CU_STREAM_DEFAULT, 0, true);
	if (!o->stream) {
		free(o);
		return NULL;
	}
	context_at_thread_end(forget_thread);
	o->stream->refs++;
	o->next = own_streams;
	own_streams = o;
	return o->stream;
}

CUresult stream_get(struct context *ctx, CUstream handle, struct stream **out)
{
	bool own = handle == CU_STREAM_PER_THREAD || (!handle && per_thread_depth);

	if (ctx->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (own)
		*out = own_stream(ctx);
	else if (!handle || handle == CU_STREAM_LEGACY)
		*out = ctx->legacy;
	else if (handle_is(handle, HANDLE_STREAM))
		*out = (struct stream *)handle;
	else
		return CUDA_ERROR_INVALID_HANDLE;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

int stream_clamp_priority(int priority)
{
	priority = priority > LEAST_PRIORITY ? LEAST_PRIORITY : priority;
	return priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = out ? cuda_check_stream_flags(flags) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	s = queue_create(ctx, flags, stream_clamp_priority(priority), false);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (handle_add(s, HANDLE_STREAM)) {
		queue_close(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = (CUstream)s;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

/* Returns at once; what is queued still runs. */
/* The legacy stream is done when the blocking streams are, too: any operation in it would wait for them. */
static bool stream_done(const struct stream *s)
{
	if (!queue_idle(s))
		return false;
	for (struct stream *o = s == s->ctx->legacy ? s->ctx->streams : NULL; o; o = o->next) {
		if (!(o->flags & CU_STREAM_NON_BLOCKING) && !queue_idle(o))
			return false;
	}
	return true;
}

CUresult cuStreamQuery(CUstream handle)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_refuse(s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->ctx->error != CUDA_SUCCESS)
		return s->ctx->error;
	return stream_done(s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult run_nothing(struct op *op)
{
	(void)op;
	return CUDA_SUCCESS;
}

static void release_plain(struct op *op)
{
	free(op);
}

static struct op *marker_create(void)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op)
		*op = (struct op){ .run = run_nothing, .release = release_plain };
	return op;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	struct context *owner = NULL;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	drv_lock();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS)
		r = capture_refuse(s);
	if (r == CUDA_SUCCESS) {
		struct op *op = s == s->ctx->legacy && !stream_done(s) ? marker_create() : NULL;

		owner = s->ctx;
		owner->refs++;
		r = op ? queue_run(s, op) : queue_wait(s, s->submitted);
	}
	drv_unlock();
	if (owner) {
		context_flush_print(owner);
		DRV_LOCKED();
		context_unref(owner);
	}
	return r;
}

static void free_points(struct dependency **points)
{
	free(*points);
}

CUresult context_drain(struct context *ctx)
{
	CLEANUP(free_points) struct dependency *points = NULL;
	size_t n = 0, i = 0;

	DRV_LOCKED();
	for (struct stream *s = ctx->streams; s; s = s->next)
		n++;
	points = calloc(n + 1, sizeof(*points));
	if (!points)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (struct stream *s = ctx->streams; s; s = s->next) {
		s->refs++;
		points[i++] = (struct dependency){ s, s->submitted };
	}
	for (i = 0; i < n; i++) {
		queue_wait(points[i].stream, points[i].seq);
		stream_unref(points[i].stream);
	}
	return ctx->error;
}

struct host_op {
	struct op op;
	CUhostFn function;
	CUstreamCallback callback;
	CUstream handle;
	void *data;
};

static CUresult run_host(struct op *op)
{
	struct host_op *h = (struct host_op *)op;

	in_callback = true;
	if (h->callback)
		h->callback(h->handle, __atomic_load_n(&op->stream->ctx->error, __ATOMIC_RELAXED), h->data);
	else
		h->function(h->data);
	in_callback = false;
	return CUDA_SUCCESS;
}

static CUresult submit_host(CUstream handle, CUhostFn function, CUstreamCallback callback, void *data)
{
	struct host_op *h;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!function && !callback)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (s->capture && function) {
		struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_HOST };

		made.host = (CUDA_HOST_NODE_PARAMS){ function, data };
		return capture_add(s, &made);
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*h = (struct host_op){ { .run = run_host, .release = release_plain }, function, callback, handle, data };
	/* documented: callbacks get the context's error, host functions are not called after one */
	h->op.always = callback != NULL;
	return queue_submit(s, &h->op);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	return submit_host(stream, function, NULL, data);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : submit_host(stream, NULL, callback, data);
}

CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int mode)
{
	CUresult r = cuda_check_host_task(mode);

	return r == CUDA_SUCCESS ? submit_host(stream, function, NULL, data) : r;
}
