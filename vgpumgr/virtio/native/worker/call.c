/* SPDX-License-Identifier: Apache-2.0 */
/* One call from beginning to end, and what is left behind by quiet ones that fail. */
#include <errno.h>
#include <stdatomic.h>

#include "output.h"
#include "session.h"
#include "share.h"
#include "vg_worker.h"

static bool fits(const struct vg_call *call, const struct wk_operation *o)
{
	return call->wants_reply == !(o->flags & WK_QUIET) && !call->bulk_in == !(o->flags & WK_BULK_IN) &&
	       !call->bulk_out == !(o->flags & WK_BULK_OUT);
}

static void release_all(struct wk_call *c)
{
	wk_unpin(c);
	wk_release_held(&c->context);
}

/* What puts work on the device waits for a turn. */
static int execute(struct wk_call *c)
{
	int error;

	if (!(c->operation->flags & WK_WORK))
		return c->operation->handle(c, false);
	wk_share_begin(c);
	error = c->operation->handle(c, false);
	wk_share_end(c);
	return error;
}

static void run(struct wk_session *s, struct vg_lane *lane, const struct vg_call *call, const struct wk_operation *o)
{
	struct wk_call c = { .session = s, .lane = lane, .call = call, .operation = o };

	vg_watch_begin(lane, call->op);
	if (execute(&c) < 0) {
		s->violation = -EPROTO;
		if (call->wants_reply)
			vg_answer(lane, call->sequence, CUDA_ERROR_UNKNOWN, NULL, 0, 0);
	}
	release_all(&c);
	vg_watch_end();
}

/*
 * In order, off the reader: what is behind something, and what makes a host function or may launch one in a graph, so that
 * none is outstanding while the reader executes a call or gives back an object. What a waiting call of the driver may need is
 * never behind it.
 */
static bool is_behind(struct wk_session *s, uint32_t op)
{
	if (op == VG_OP_host_gate_next || op == VG_OP_host_gate_open || op == VG_OP_gate_fill || op == VG_OP_gate_fetch ||
	    op == VG_OP_output_next)
		return false;
	return wk_is_behind(s) || op == VG_OP_host_gate || (op == VG_OP_graph_launch && atomic_load(&s->hosts));
}

/* What takes memory may wait until streams have freed some; its guest waits for its answer. */
static bool may_wait(uint32_t op)
{
	return (op == VG_OP_memory_allocate || op == VG_OP_memory_allocate_pitch || op == VG_OP_memory_allocate_async ||
		op == VG_OP_pool_allocate || op == VG_OP_virtual_create) &&
	       wk_freed_any();
}

/* What waits may end at once: then no other thread has to be woken for it. */
static bool may_be_quick(uint32_t op)
{
	return op == VG_OP_cuStreamSynchronize || op == VG_OP_cuEventSynchronize ||
	       ((op == VG_OP_copy_to_host || op == VG_OP_copy_to_host_2d) && wk_window_ready());
}

__attribute__((cold, noinline)) static int run_elsewhere(struct wk_session *s, struct vg_lane *lane,
							 const struct vg_call *call, const struct wk_operation *o,
							 bool behind)
{
	struct wk_job *job = wk_job_new(lane, call, o, run);

	if (!job)
		return -ENOMEM;
	return behind ? wk_enqueue(s, job) : wk_offload(s, job);
}

int wk_call(void *argument, struct vg_lane *lane, const struct vg_call *call)
{
	struct wk_session *s = argument;
	const struct wk_operation *o = wk_operation(call->op);
	struct wk_call c = { .session = s, .lane = lane, .call = call, .operation = o };
	bool behind = is_behind(s, call->op), elsewhere;
	struct vg_call rest;
	int error;

	if (!o || !fits(call, o) || s->violation)
		return -EPROTO;
	c.reader = !behind && may_be_quick(call->op);
	elsewhere = behind || (o->flags & WK_BLOCKING && !c.reader) || may_wait(call->op);
	error = elsewhere ? o->handle(&c, true) : execute(&c);
	if (!error && (elsewhere || c.unfinished)) {
		rest = *call;
		rest.started = c.started;
		error = run_elsewhere(s, lane, &rest, o, behind);
	}
	release_all(&c);
	return error ? error : c.violation;
}

/*
 * Under the lock. Quiet work is dropped while an error waits to be told; the first call with a reply in a context
 * tells it.
 */
static CUresult pending(struct wk_session *s, unsigned int flags)
{
	CUresult r = flags & WK_RUN_AFTER_ERROR ? CUDA_SUCCESS : s->deferred;

	if (r != CUDA_SUCCESS && !(flags & WK_QUIET))
		s->deferred = CUDA_SUCCESS;
	return r;
}

CUresult wk_begin(struct wk_call *c, uint64_t context)
{
	/* what failed since a call was started does not end the wait for it: the driver still writes to its bulk */
	unsigned int flags = c->operation->flags | (c->call->started ? WK_RUN_AFTER_ERROR : 0);
	struct wk_session *s = c->session;
	CUresult r;

	if (!(flags & WK_IN_CONTEXT))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&s->lock);
	r = pending(s, flags);
	if (r == CUDA_SUCCESS) {
		c->context = wk_hold_locked(s, WK_CONTEXT, context);
		if (!c->context)
			r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	pthread_mutex_unlock(&s->lock);
	if (r == CUDA_SUCCESS && flags & WK_QUIET)
		r = wk_capture_note(c, NULL, 1);
	if (r != CUDA_SUCCESS)
		return r;
	return wk_set_current(c->context);
}

/* An answer that cannot be given is no violation: the guest process has gone. */
static int answer(struct wk_call *c, CUresult result, const void *data, size_t length)
{
	if (c->operation->flags & WK_BLOCKING)
		wk_output_settle();
	vg_answer(c->lane, c->call->sequence, result, data, length, result == CUDA_SUCCESS ? c->bulk_filled : 0);
	return 0;
}

/* Under the lock. Threads of a program may use a context while another destroys it: that concerns no other context. */
static bool concerns_nobody(const struct wk_call *c)
{
	return c->operation->flags & WK_IN_CONTEXT && (!c->context || c->context->out);
}

int wk_finish(struct wk_call *c, CUresult result, const void *data, size_t length)
{
	struct wk_session *s = c->session;

	if (c->violation)
		return c->violation;
	if (c->answered || c->unfinished)
		return 0;
	if (!(c->operation->flags & WK_QUIET))
		return answer(c, result, data, length);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_lock(&s->lock);
		if (s->deferred == CUDA_SUCCESS && !concerns_nobody(c))
			s->deferred = result;
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}
