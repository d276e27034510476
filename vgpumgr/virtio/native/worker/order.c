/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in their order, off the reader. While a host function of the guest is outstanding, any call of the driver may
 * wait for it (a free waits for the device, a launch for room in its stream), and what the host function waits for, the
 * opening of its gate, is still to be read. So from then on the reader queues calls, and one thread executes them; when
 * it has done all and no host function is left, the reader executes them itself again, which is faster.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "session.h"

enum { LOOK_MS = 50 };

bool wk_is_behind(struct wk_session *s)
{
	return atomic_load_explicit(&s->behind, memory_order_acquire) != 0;
}

static void execute(struct wk_session *s, struct wk_job *job)
{
	struct vg_lane *lane = job->lane;
	uint32_t sequence = job->call.sequence;

	if (!(job->operation->flags & WK_BLOCKING)) {
		job->run(s, lane, &job->call, job->operation);
		free(job);
	} else if (wk_offload(s, job)) {
		s->violation = -EAGAIN;
		vg_answer(lane, sequence, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, 0);
	}
	atomic_fetch_sub_explicit(&s->behind, 1, memory_order_release);
}

/* Under the lock: the next job, or NULL when the session ends. */
static struct wk_job *next_job(struct wk_session *s)
{
	struct wk_job *job;

	while (!s->queue && !s->stopping)
		pthread_cond_wait(&s->arrived, &s->lock);
	if (s->stopping)
		return NULL;
	job = s->queue;
	s->queue = job->next;
	if (!s->queue)
		s->queue_last = &s->queue;
	job->next = NULL;
	s->queue_bytes -= job->bytes;
	pthread_cond_signal(&s->room);
	return job;
}

static void *serve(void *argument)
{
	struct wk_session *s = argument;
	struct wk_job *job;

	pthread_mutex_lock(&s->lock);
	while ((job = next_job(s))) {
		pthread_mutex_unlock(&s->lock);
		execute(s, job);
		pthread_mutex_lock(&s->lock);
	}
	s->executor = false;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Under the lock. */
static bool start_executor(struct wk_session *s)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (s->executor)
		return true;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	s->executor = !pthread_create(&thread, &attributes, serve, s);
	pthread_attr_destroy(&attributes);
	return s->executor;
}

/* Under the lock. A lane that is closed meanwhile is not waited for: its session ends. */
static void wait_for_room(struct wk_session *s, const struct wk_job *job)
{
	struct timespec until;

	while (s->queue && s->queue_bytes + job->bytes > WK_QUEUE_BYTES && !vg_lane_closing(job->lane)) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&s->room, &s->lock, &until);
	}
}

int wk_enqueue(struct wk_session *s, struct wk_job *job)
{
	bool started;

	pthread_mutex_lock(&s->lock);
	started = start_executor(s);
	if (started) {
		wait_for_room(s, job);
		atomic_fetch_add_explicit(&s->behind, 1, memory_order_relaxed);
		s->queue_bytes += job->bytes;
		*s->queue_last = job;
		s->queue_last = &job->next;
		pthread_cond_signal(&s->arrived);
	}
	pthread_mutex_unlock(&s->lock);
	if (!started)
		free(job);
	return started ? 0 : -EAGAIN;
}

void wk_order_stop(struct wk_session *s)
{
	struct wk_job *job;

	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->arrived);
	while (s->executor)
		pthread_cond_wait(&s->idle, &s->lock);
	while ((job = s->queue)) {
		s->queue = job->next;
		if (job->call.wants_reply)
			vg_answer(job->lane, job->call.sequence, CUDA_ERROR_DEINITIALIZED, NULL, 0, 0);
		free(job);
	}
	pthread_mutex_unlock(&s->lock);
}
