/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait for the device run on threads of their own, so that one waiting thread of a guest process does not
 * hold up the others. Threads are started as needed and end with the session.
 */
#include <errno.h>
#include <stdlib.h>

#include "session.h"

/* Under the lock: the next job, or NULL when the session ends. */
static struct wk_job *next_job(struct wk_session *s)
{
	struct wk_job *job;

	while (!s->first && !s->stopping) {
		s->sleeping++;
		pthread_cond_wait(&s->work, &s->lock);
		s->sleeping--;
	}
	job = s->first;
	if (job) {
		s->first = job->next;
		if (!s->first)
			s->last = &s->first;
		s->jobs--;
	}
	return job;
}

static void *serve(void *argument)
{
	struct wk_session *s = argument;
	struct wk_job *job;

	pthread_mutex_lock(&s->lock);
	while ((job = next_job(s))) {
		pthread_mutex_unlock(&s->lock);
		job->run(s, job->lane, &job->call, job->operation);
		free(job);
		pthread_mutex_lock(&s->lock);
	}
	s->helpers--;
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Under the lock. One more thread than jobs that could be taken at once is never needed. */
static void start_helper(struct wk_session *s)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (s->sleeping >= s->jobs || s->helpers >= WK_HELPERS)
		return;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, WK_STACK_BYTES);
	if (!pthread_create(&thread, &attributes, serve, s))
		s->helpers++;
	pthread_attr_destroy(&attributes);
}

int wk_offload(struct wk_session *s, struct wk_job *job)
{
	bool queued = false, taken = false;

	pthread_mutex_lock(&s->lock);
	if (s->jobs < WK_JOBS) {
		*s->last = job;
		s->last = &job->next;
		s->jobs++;
		queued = true;
		start_helper(s);
		taken = s->helpers > 0;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	if (!queued)
		free(job);
	return taken ? 0 : -EAGAIN; /* more waiting calls than a process has threads: refused, and the session ends */
}

void wk_helpers_stop(struct wk_session *s)
{
	struct wk_job *job;

	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->work);
	while (s->helpers)
		pthread_cond_wait(&s->idle, &s->lock);
	while ((job = s->first)) { /* no thread could be started for it */
		s->first = job->next;
		free(job);
	}
	pthread_mutex_unlock(&s->lock);
}
