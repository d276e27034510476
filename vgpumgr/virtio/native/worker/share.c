/* SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "session.h"
#include "vg_worker.h"

#define ONE_ENTERS ((1ull << 32) + 1) /* of a row's `work` */

enum {
	OPEN_NS = 2000000,       /* how often the device is asked: no other channel waits, */
	CONTENDED_NS = 200000,   /* another waits for its turn, */
	DRAIN_LEAST_NS = 10000,  /* our turn has ended: longer, the longer that is ago */
	DRAIN_MOST_NS = 1000000,
	DRAIN_PART = 64,
};

/* What a target had put into it last: OPENING while a wait for memory is being put there. */
enum wk_last { LAST_WORK, LAST_OPENING, LAST_WAIT };

/* Streams that may have work on the device, and contexts whose default stream may. One session is served by a process. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct wk_object *first;
	struct wk_session *session;
	bool started, stopping, ended;
} share = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

static bool is_closing(const void *lane)
{
	return vg_lane_closing(lane);
}

/* ---- calls */

/* `work` rises before `turn` is read, and the arbiter closes the turn before it reads `work`: one of the two sees the other. */
static bool try_enter(void)
{
	if (vg_load32(&vg_share_page->turn) == VG_TURN_CLOSED)
		return false;
	atomic_fetch_add(&vg_share_row->work, ONE_ENTERS);
	if (vg_load32(&vg_share_page->turn) != VG_TURN_CLOSED)
		return true;
	atomic_fetch_sub(&vg_share_row->work, 1);
	return false;
}

/* A lane that closes is waited for no longer: its session ends, and so does what it launches. */
static void enter(const struct vg_lane *lane)
{
	bool entered = try_enter();
	uint64_t paused;

	if (entered)
		return;
	paused = vg_watch_pause();
	while (!entered && vg_share_wait(is_closing, lane))
		entered = try_enter();
	if (!entered)
		atomic_fetch_add(&vg_share_row->work, ONE_ENTERS);
	vg_watch_resume(paused);
}

void wk_share_wait_and_enter(struct wk_call *c)
{
	enter(c->lane);
	c->sharing = true;
}

void wk_share_leave(struct wk_call *c)
{
	c->sharing = false;
	atomic_fetch_sub(&vg_share_row->work, 1);
}

/* The list holds it until the driver says that nothing is left in it. */
static void queue(struct wk_object *target)
{
	pthread_mutex_lock(&share.lock);
	if (!target->queued) {
		target->queued = true;
		wk_hold_again(target);
		target->next_queued = share.first;
		share.first = target;
	}
	if (!atomic_exchange(&vg_share_row->busy, 1))
		vg_share_ring();
	pthread_cond_signal(&share.more);
	pthread_mutex_unlock(&share.lock);
}

void wk_share_mark_target(struct wk_call *c, struct wk_object *target)
{
	bool follows = c->call->op != VG_OP_stream_memory && atomic_load(&target->last) != LAST_WORK, captures;

	if (!follows && atomic_load_explicit(&target->marked, memory_order_relaxed))
		return;
	if (target->kind == WK_STREAM && wk_capture_asks(c, target, &captures) == CUDA_SUCCESS && captures)
		return; /* nothing is executed */
	if (follows)
		atomic_store(&target->last, LAST_WORK);
	if (!atomic_exchange(&target->marked, true))
		queue(target);
}

/* Takes one of the context's out of the list, or any (NULL); the list's hold of it is the caller's then. */
static struct wk_object *take_one(const struct wk_object *context)
{
	struct wk_object **at, *found;

	pthread_mutex_lock(&share.lock);
	for (at = &share.first; *at && context && (*at)->context != context;)
		at = &(*at)->next_queued;
	found = *at;
	if (found) {
		*at = found->next_queued;
		found->queued = found->has_mark = false;
		atomic_store(&found->marked, false);
	}
	pthread_mutex_unlock(&share.lock);
	return found;
}

void wk_share_forget(struct wk_call *c, struct wk_object *context)
{
	struct wk_object *gone;

	if (!vg_share_row)
		return;
	atomic_fetch_add(&vg_share_row->work, ONE_ENTERS);
	c->sharing = true;
	while ((gone = take_one(context)))
		wk_release(gone);
}

/* ---- host functions */

struct wk_object *wk_share_target(struct wk_call *c, struct wk_object *stream)
{
	struct wk_object *target = stream ? stream : c->context;

	if (!vg_share_row)
		return NULL;
	wk_hold_again(target);
	return target;
}

void wk_share_reached(struct wk_object *target)
{
	if (target)
		atomic_fetch_add(&target->held, 1);
}

/* What is behind the function in its stream begins when this returns. */
void wk_share_resume(struct wk_session *session, struct wk_object *target)
{
	if (!target)
		return;
	enter(session->lane);
	if (!atomic_exchange(&target->marked, true))
		queue(target);
	atomic_fetch_sub(&target->held, 1);
	atomic_fetch_sub(&vg_share_row->work, 1);
}

/* ---- waits for memory */

static bool record_before(struct wk_object *target, const struct wk_object *stream)
{
	if (!target->before && wk_driver.cuEventCreate(&target->before, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	return wk_driver.cuEventRecordWithFlags(target->before, wk_raw(stream), 0) == CUDA_SUCCESS;
}

/*
 * `last` is set before `work` is read, and who comes in beside raises `work` before it reads `last` (wk_share_mark_target): one
 * of the two sees the other.
 */
bool wk_share_wait_begin(struct wk_call *c, struct wk_object *stream)
{
	struct wk_object *target = stream ? stream : c->context;

	if (!c->sharing || target->context != c->context) /* an event is of the context that is current */
		return false;
	if (atomic_load(&target->last) == LAST_WAIT) /* no launch since: the event is before an earlier wait */
		return false;
	atomic_store(&target->last, LAST_OPENING);
	return (uint32_t)atomic_load(&vg_share_row->work) == 1 && record_before(target, stream);
}

void wk_share_wait_end(struct wk_call *c, struct wk_object *stream, bool alone, CUresult r)
{
	struct wk_object *target = stream ? stream : c->context;
	uint32_t opening = LAST_OPENING;

	if (c->sharing)
		atomic_compare_exchange_strong(&target->last, &opening, alone && r == CUDA_SUCCESS ? LAST_WAIT : LAST_WORK);
}

/* Whether it has got to a wait that is the last it has to do. */
static bool is_at_wait(const struct wk_object *o)
{
	return atomic_load(&o->last) == LAST_WAIT && wk_driver.cuEventQuery(o->before) == CUDA_SUCCESS;
}

/* ---- captures */

void wk_share_prepare_capture(void)
{
	if (!vg_share_row)
		return;
	pthread_mutex_lock(&share.lock);
	for (struct wk_object *o = share.first; o; o = o->next_queued) {
		CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
		CUevent mark = o->mark;
		cuuint64_t number;

		if (o->has_mark || (o->kind == WK_STREAM && (wk_capture_ask(o, &status, &number) != CUDA_SUCCESS || status)))
			continue;
		if (wk_set_current(o->context) != CUDA_SUCCESS)
			continue;
		if (!mark && wk_driver.cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
			continue;
		o->mark = mark;
		o->has_mark = wk_driver.cuEventRecordWithFlags(mark, o->kind == WK_STREAM ? o->driver : NULL, 0) == CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&share.lock);
}

/* A stream that captures cannot be asked: the event behind its work can. */
static CUresult ask(struct wk_object *o)
{
	CUresult r = wk_set_current(o->context);

	if (r != CUDA_SUCCESS)
		return r;
	if (!atomic_load(&share.session->captures))
		o->has_mark = false;
	return o->has_mark ? wk_driver.cuEventQuery(o->mark) :
			     wk_driver.cuStreamQuery(o->kind == WK_STREAM ? o->driver : NULL);
}

/* ---- the thread that looks after them */

/* Under the lock. What has nothing left leaves the list for `gone`; false: some have work, or launches came in between. */
static bool look(struct wk_object **gone)
{
	uint64_t work = atomic_load(&vg_share_row->work);
	struct wk_object **at = &share.first;
	bool all = true;

	if ((uint32_t)work)
		return false;
	for (struct wk_object *o = share.first; o; o = o->next_queued)
		atomic_store(&o->marked, false); /* the next launch into it queues it again */
	for (struct wk_object *o = share.first; o; o = o->next_queued)
		o->works = ask(o) == CUDA_ERROR_NOT_READY;
	if (atomic_load(&vg_share_row->work) != work) {
		for (struct wk_object *o = share.first; o; o = o->next_queued)
			atomic_store(&o->marked, true);
		return false;
	}
	while (*at) {
		struct wk_object *o = *at;

		if (o->works) {
			bool held = atomic_load(&o->held) || is_at_wait(o);

			if (!held)
				atomic_store(&o->marked, true);
			all = all && held;
			at = &o->next_queued;
			continue;
		}
		*at = o->next_queued;
		o->queued = o->has_mark = false;
		o->next_gone = *gone; /* a launch may queue it again before it is released */
		*gone = o;
	}
	return all;
}

static void release(struct wk_object *gone)
{
	while (gone) {
		struct wk_object *next = gone->next_gone;

		wk_release(gone);
		gone = next;
	}
}

static uint64_t read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t choose_pause(uint32_t turn, uint64_t closed_ns)
{
	uint64_t part = closed_ns / DRAIN_PART;

	if (turn != VG_TURN_CLOSED)
		return turn == VG_TURN_OPEN ? OPEN_NS : CONTENDED_NS;
	return part < DRAIN_LEAST_NS ? DRAIN_LEAST_NS : part > DRAIN_MOST_NS ? DRAIN_MOST_NS : part;
}

/* Under the lock, which is given back in between: until all is done, or no more is to be looked after. */
static void attend(void)
{
	uint64_t closed_from = 0;

	while (!share.stopping) {
		uint32_t turn = vg_load32(&vg_share_page->turn);
		struct wk_object *gone = NULL;
		bool done = look(&gone);

		if (done) {
			atomic_store(&vg_share_row->busy, 0);
			vg_share_ring();
		}
		pthread_mutex_unlock(&share.lock);
		release(gone);
		if (turn != VG_TURN_CLOSED)
			closed_from = 0;
		else if (!closed_from)
			closed_from = read_clock();
		if (!done)
			vg_share_sleep(turn, choose_pause(turn, closed_from ? read_clock() - closed_from : 0));
		pthread_mutex_lock(&share.lock);
		if (done)
			return;
	}
}

static void *serve(void *unused)
{
	pthread_mutex_lock(&share.lock);
	while (!share.stopping) {
		if (atomic_load(&vg_share_row->busy))
			attend();
		else
			pthread_cond_wait(&share.more, &share.lock);
	}
	share.ended = true;
	pthread_cond_broadcast(&share.more);
	pthread_mutex_unlock(&share.lock);
	return unused;
}

/* Without the thread the session would never be seen to be done: its channel pays for that. */
void wk_share_start(struct wk_session *session)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (!vg_share_row)
		return;
	share.session = session;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 512 << 10);
	share.started = !pthread_create(&thread, &attributes, serve, NULL);
	pthread_attr_destroy(&attributes);
}

/* Ends the thread; what is still in the list is released. */
void wk_share_stop(void)
{
	struct wk_object *gone;

	pthread_mutex_lock(&share.lock);
	share.stopping = true;
	pthread_cond_broadcast(&share.more);
	while (share.started && !share.ended)
		pthread_cond_wait(&share.more, &share.lock);
	pthread_mutex_unlock(&share.lock);
	while ((gone = take_one(NULL)))
		wk_release(gone);
}
