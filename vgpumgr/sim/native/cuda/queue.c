/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams as queues. An operation runs when those before it in its stream and all that it depends on are complete.
 * Synchronous work runs on the calling thread when nothing is before it; else the stream's own thread does it.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "captures.h"

struct stream *queue_create(struct context *ctx, unsigned flags, int priority, bool is_default)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct stream){ .ctx = ctx, .refs = 1, .flags = flags, .is_default = is_default };
	cuda_stream_attributes_init(&s->attributes, priority);
	s->id = next_id();
	s->tail = &s->head;
	pthread_cond_init(&s->wake, NULL);
	pthread_cond_init(&s->done, NULL);
	s->next = ctx->streams;
	ctx->streams = s;
	ctx->refs++;
	return s;
}

void stream_unref(struct stream *s)
{
	if (--s->refs)
		return;
	pthread_cond_destroy(&s->wake);
	pthread_cond_destroy(&s->done);
	context_unref(s->ctx);
	free(s);
}

void queue_close(struct stream *s)
{
	for (struct stream **p = &s->ctx->streams; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	capture_leave(s);
	handle_remove(s);
	s->closing = true;
	pthread_cond_signal(&s->wake);
	stream_unref(s);
}

int op_depend(struct op *op, struct stream *s, uint64_t seq)
{
	struct dependency *deps;

	if (s->completed >= seq)
		return 0;
	deps = realloc(op->deps, (op->n_deps + 1) * sizeof(*deps));
	if (!deps)
		return -ENOMEM;
	op->deps = deps;
	deps[op->n_deps++] = (struct dependency){ s, seq };
	s->refs++;
	return 0;
}

/* CUDA programming guide, "Implicit synchronization": the legacy default stream and blocking streams wait for each other. */
static int depend_implicitly(struct stream *s, struct op *op)
{
	struct context *ctx = s->ctx;
	int error = 0;

	if (s->flags & CU_STREAM_NON_BLOCKING)
		return 0;
	if (s != ctx->legacy)
		return op_depend(op, ctx->legacy, ctx->legacy->submitted);
	for (struct stream *o = ctx->streams; o && !error; o = o->next) {
		if (o != s && !(o->flags & CU_STREAM_NON_BLOCKING))
			error = op_depend(op, o, o->submitted);
	}
	return error;
}

static void op_free(struct op *op)
{
	for (size_t i = 0; i < op->n_deps; i++)
		stream_unref(op->deps[i].stream);
	free(op->deps);
	op->deps = NULL;
	op->n_deps = 0;
	op->release(op);
}

static void wait_dependencies(struct op *op)
{
	for (size_t i = 0; i < op->n_deps; i++) {
		struct dependency *d = &op->deps[i];

		while (d->stream->completed < d->seq)
			pthread_cond_wait(&d->stream->done, &drv.lock);
	}
}

/* A destroyed stream is not waited for when its context goes: what it had left uses modules and memory that are gone. */
static bool is_void(const struct stream *s)
{
	return s->ctx->error != CUDA_SUCCESS || (s->closing && s->ctx->destroyed) || s->given_up;
}

/* With the lock held; dropped while the operation runs. */
static void execute(struct stream *s, struct op *op)
{
	struct context *ctx = s->ctx;
	CUresult r = CUDA_SUCCESS;

	if (!is_void(s) || op->always) {
		if (op->busy)
			client_busy(ctx->dev, 1);
		drv_unlock();
		r = op->run(op);
		drv_lock();
		if (op->busy)
			client_busy(ctx->dev, -1);
	}
	if (r != CUDA_SUCCESS)
		context_poison(ctx, r);
	s->completed = op->seq;
	s->running = false;
	op_free(op);
	pthread_cond_broadcast(&s->done);
	if (s->head)
		pthread_cond_signal(&s->wake);
}

static void *work(void *arg)
{
	struct stream *s = arg;

	drv_lock();
	for (;;) {
		struct op *op;

		while ((!s->head || s->running) && !(s->closing && !s->head))
			pthread_cond_wait(&s->wake, &drv.lock);
		op = s->head;
		if (!op)
			break;
		s->head = op->next;
		if (!s->head)
			s->tail = &s->head;
		s->running = true;
		wait_dependencies(op);
		execute(s, op);
	}
	stream_unref(s);
	drv_unlock();
	return NULL;
}

/* Signals are the program's business: none is delivered to a worker. */
static int start_worker(struct stream *s)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attr, work, s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return -error;
	s->has_worker = true;
	s->refs++;
	return 0;
}

static CUresult prepare(struct stream *s, struct op *op)
{
	CUresult r = s->closing || s->ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;

	if (r == CUDA_SUCCESS)
		r = capture_refuse(s);
	if (r == CUDA_SUCCESS && depend_implicitly(s, op))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		op_free(op);
		return r;
	}
	op->stream = s;
	return CUDA_SUCCESS;
}

CUresult queue_submit(struct stream *s, struct op *op)
{
	CUresult r = prepare(s, op);

	if (r != CUDA_SUCCESS)
		return r;
	if (!s->has_worker && start_worker(s)) {
		op_free(op);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	op->seq = ++s->submitted;
	op->next = NULL;
	*s->tail = op;
	s->tail = &op->next;
	pthread_cond_signal(&s->wake);
	return CUDA_SUCCESS;
}

bool queue_idle(const struct stream *s)
{
	return s->completed == s->submitted;
}

CUresult queue_wait(struct stream *s, uint64_t seq)
{
	CUresult r;

	s->refs++;
	while (s->completed < seq)
		pthread_cond_wait(&s->done, &drv.lock);
	r = s->ctx->error;
	stream_unref(s);
	return r;
}

CUresult queue_run(struct stream *s, struct op *op)
{
	CUresult r;

	if (!queue_idle(s)) {
		r = queue_submit(s, op);
		return r == CUDA_SUCCESS ? queue_wait(s, s->submitted) : r;
	}
	r = prepare(s, op);
	if (r != CUDA_SUCCESS)
		return r;
	s->refs++;
	op->seq = ++s->submitted;
	s->running = true;
	wait_dependencies(op);
	execute(s, op);
	r = s->ctx->error;
	stream_unref(s);
	return r;
}
