/* SPDX-License-Identifier: Apache-2.0 */
#include "user_object.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { ASK_FIRST_NS = 200000, ASK_LAST_NS = 50000000 };

struct user_object {
	struct user_object *next; /* of those that are held, or of those whose function is to be called */
	CUhostFn destroy;
	void *data;
	unsigned references;
};

/* References that last until a launch has ended. */
struct waiting {
	struct waiting *next;
	struct user_objects what;
	bool (*passed)(void *launch);
	void *launch;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct user_object *objects, *unheld, **last_unheld = &unheld;
static struct waiting *waiting;
static bool serves;

/* ---- the thread that calls functions; nothing is locked while it calls one, or asks about a launch */

static void let_go_all(struct user_objects *graph);

/* Under the lock, which it leaves; the launches that have ended. */
static bool look_at_launches(void)
{
	struct waiting *all = waiting, **at = &all, *w;
	bool ended = false;

	waiting = NULL;
	pthread_mutex_unlock(&lock);
	while ((w = *at)) {
		if (!w->passed(w->launch)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		pthread_mutex_lock(&lock);
		let_go_all(&w->what);
		pthread_mutex_unlock(&lock);
		free(w);
		ended = true;
	}
	pthread_mutex_lock(&lock);
	*at = waiting;
	waiting = all;
	return ended;
}

static void call_functions(void)
{
	struct user_object *o;

	while ((o = unheld)) {
		unheld = o->next;
		if (!unheld)
			last_unheld = &unheld;
		pthread_mutex_unlock(&lock);
		o->destroy(o->data);
		free(o);
		pthread_mutex_lock(&lock);
	}
}

static void wait_a_while(long ns)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ns;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&work, &lock, &until);
}

static void *serve(void *unused)
{
	long pause_ns = ASK_FIRST_NS;
	sigset_t all;

	/* the program's signals are not for a thread that it does not know of */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	pthread_mutex_lock(&lock);
	for (;;) {
		call_functions();
		if (!waiting) {
			pthread_cond_wait(&work, &lock);
			pause_ns = ASK_FIRST_NS;
		} else if (look_at_launches()) {
			pause_ns = ASK_FIRST_NS;
		} else if (!unheld) {
			wait_a_while(pause_ns);
			pause_ns = pause_ns < ASK_LAST_NS ? 2 * pause_ns : ASK_LAST_NS;
		}
	}
	return unused;
}

/* Under the lock. */
static bool start_serving(void)
{
	serves = serves || user_object_start_thread(serve);
	return serves;
}

/* ---- references; all under the lock */

static struct user_object *find(CUuserObject handle)
{
	struct user_object *o = objects;

	while (o && o != (struct user_object *)handle)
		o = o->next;
	return o;
}

static void let_go(struct user_object *o, unsigned count)
{
	struct user_object **at = &objects;

	o->references -= count;
	if (o->references)
		return;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	o->next = NULL;
	*last_unheld = o;
	last_unheld = &o->next;
	pthread_cond_signal(&work);
}

static void let_go_all(struct user_objects *graph)
{
	for (size_t i = 0; i < graph->count; i++)
		let_go(graph->held[i].object, graph->held[i].count);
	free(graph->held);
	*graph = (struct user_objects){ 0 };
}

static bool valid(unsigned count, const struct user_object *o)
{
	return o && count && count <= INT_MAX && o->references <= INT_MAX - count;
}

static struct user_object_held *find_held(const struct user_objects *graph, const struct user_object *o)
{
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->held[i].object == o)
			return &graph->held[i];
	}
	return NULL;
}

static CUresult hold(struct user_objects *graph, struct user_object *o, unsigned count)
{
	struct user_object_held *held = find_held(graph, o), *grown;

	if (held) {
		held->count += count;
		return CUDA_SUCCESS;
	}
	grown = realloc(graph->held, (graph->count + 1) * sizeof(*grown));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	grown[graph->count++] = (struct user_object_held){ o, count };
	graph->held = grown;
	return CUDA_SUCCESS;
}

/* ---- what CUDA calls */

CUresult user_object_create(CUuserObject *out, void *data, CUhostFn destroy, unsigned references, unsigned flags)
{
	struct user_object *o;
	bool ready;

	if (!out || !destroy || !references || references > INT_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	o = malloc(sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	ready = start_serving();
	if (ready) {
		*o = (struct user_object){ objects, destroy, data, references };
		objects = o;
		*out = (CUuserObject)o;
	}
	pthread_mutex_unlock(&lock);
	if (!ready)
		free(o);
	return ready ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult user_object_retain(CUuserObject handle, unsigned count)
{
	struct user_object *o;
	bool right;

	pthread_mutex_lock(&lock);
	o = find(handle);
	right = valid(count, o);
	if (right)
		o->references += count;
	pthread_mutex_unlock(&lock);
	return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult user_object_release(CUuserObject handle, unsigned count)
{
	struct user_object *o;
	bool right;

	pthread_mutex_lock(&lock);
	o = find(handle);
	right = o && count && count <= o->references;
	if (right)
		let_go(o, count);
	pthread_mutex_unlock(&lock);
	return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult user_objects_retain(struct user_objects *graph, CUuserObject handle, unsigned count, unsigned flags)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	struct user_object *o;
	bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;

	pthread_mutex_lock(&lock);
	o = find(handle);
	if ((!flags || move) && o && count && (move ? count <= o->references : valid(count, o)))
		r = hold(graph, o, count);
	if (r == CUDA_SUCCESS && !move)
		o->references += count;
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult user_objects_release(struct user_objects *graph, CUuserObject handle, unsigned count)
{
	struct user_object_held *held;
	bool right;

	pthread_mutex_lock(&lock);
	held = find_held(graph, find(handle));
	right = held && count && count <= held->count;
	if (right) {
		let_go(held->object, count);
		held->count -= count;
		if (!held->count)
			*held = graph->held[--graph->count];
	}
	pthread_mutex_unlock(&lock);
	return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult user_objects_share(struct user_objects *to, const struct user_objects *from)
{
	CUresult r = CUDA_SUCCESS;

	if (!from->count)
		return r;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; r == CUDA_SUCCESS && i < from->count; i++) {
		r = hold(to, from->held[i].object, 1);
		if (r == CUDA_SUCCESS)
			from->held[i].object->references++;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void user_objects_drop(struct user_objects *graph)
{
	if (!graph->held)
		return;
	pthread_mutex_lock(&lock);
	let_go_all(graph);
	pthread_mutex_unlock(&lock);
}

void user_objects_drop_after(struct user_objects *graph, bool (*passed)(void *launch), void *launch)
{
	struct waiting *w = malloc(sizeof(*w));

	if (!w) { /* they stay: better than to call a function too soon */
		*graph = (struct user_objects){ 0 };
		return;
	}
	pthread_mutex_lock(&lock);
	*w = (struct waiting){ waiting, *graph, passed, launch };
	*graph = (struct user_objects){ 0 };
	waiting = w;
	pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
}
