/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends that may wait for the device, on a thread of their own: a driver frees memory, unloads a module or destroys a graph
 * when what uses it is done. To the guest it is gone at once; until the driver has it back it is charged, and who finds no room
 * waits for what is on its way.
 */
#include <stdlib.h>

#include "session.h"
#include "vg_worker.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct wk_object *first, **last;
	struct vg_lane *lane;     /* whose watchdog names those that last */
	bool thread;
} frees = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .last = &frees.first };

static uint32_t find_op(enum wk_kind kind)
{
	switch (kind) {
	case WK_FUNCTION:
	case WK_MODULE:
		return VG_OP_module_unload;
	case WK_GRAPH:
		return VG_OP_graph_destroy;
	case WK_GRAPH_EXEC:
		return VG_OP_graph_exec_destroy;
	case WK_MATH:
		return VG_OP_math_destroy;
	default:
		return VG_OP_memory_free;
	}
}

static void end(struct vg_lane *lane, struct wk_object *o)
{
	if (lane)
		vg_watch_begin(lane, find_op(o->kind));
	wk_release(o);
	if (lane)
		vg_watch_end();
}

static void *serve(void *unused)
{
	pthread_mutex_lock(&frees.lock);
	for (;;) {
		struct wk_object *o = frees.first;
		struct vg_lane *lane = frees.lane;

		if (!o) {
			pthread_cond_wait(&frees.more, &frees.lock);
			continue;
		}
		frees.first = o->next;
		if (!frees.first)
			frees.last = &frees.first;
		pthread_mutex_unlock(&frees.lock);
		end(lane, o);
		wk_pending_end();
		pthread_mutex_lock(&frees.lock);
	}
	return unused;
}

void wk_frees_serve(struct vg_lane *lane)
{
	pthread_mutex_lock(&frees.lock);
	frees.lane = lane;
	pthread_mutex_unlock(&frees.lock);
}

/* Under the lock. */
static bool start(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (frees.thread)
		return true;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, WK_STACK_BYTES);
	frees.thread = !pthread_create(&thread, &attributes, serve, NULL);
	pthread_attr_destroy(&attributes);
	return frees.thread;
}

void wk_release_later(struct wk_object *o)
{
	bool started;

	if (!wk_is_last(o)) { /* who uses it ends it */
		wk_release(o);
		return;
	}
	if (!wk_pending_begin()) {
		wk_release(o);
		return;
	}
	pthread_mutex_lock(&frees.lock);
	started = start();
	if (started) {
		o->next = NULL;
		*frees.last = o;
		frees.last = &o->next;
		pthread_cond_signal(&frees.more);
	}
	pthread_mutex_unlock(&frees.lock);
	if (!started) {
		wk_release(o);
		wk_pending_end();
	}
}
