/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that computes. A stream's host function may not call the driver, so it leaves its work to this thread and waits
 * for it; the thread asks the driver which memory there is. It is the only one that calls OpenBLAS.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "blas.h"

/* Work of a graph may be waited for by several streams at once. */
struct job {
	struct job *next;
	struct work *work;
	bool done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static bool started, busy, stopped;

static struct job *take(void)
{
	struct job *job;

	while (!first || stopped)
		pthread_cond_wait(&posted, &lock);
	job = first;
	first = job->next;
	if (!first)
		last = &first;
	return job;
}

static void run(struct work *w)
{
	bl_driver.cuCtxSetCurrent(w->context->handle);
	w->run(w);
	bl_driver.cuCtxSetCurrent(NULL);
}

static void *serve(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct job *job = take();

		busy = true;
		pthread_mutex_unlock(&lock);
		run(job->work);
		pthread_mutex_lock(&lock);
		busy = false;
		job->done = true;
		pthread_cond_broadcast(&finished);
	}
	return NULL;
}

/* OpenBLAS gives up its memory when the process ends: nothing may compute then. */
static void stop(void)
{
	pthread_mutex_lock(&lock);
	stopped = true;
	while (busy)
		pthread_cond_wait(&finished, &lock);
	pthread_mutex_unlock(&lock);
}

static int start(void)
{
	sigset_t all, old;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return error;
	pthread_detach(thread);
	return atexit(stop);
}

int bl_runner_start(void)
{
	bool good;

	pthread_mutex_lock(&lock);
	if (!started)
		started = !start();
	good = started;
	pthread_mutex_unlock(&lock);
	return good ? BL_SUCCESS : BL_NOT_INITIALIZED;
}

void bl_runner_run(struct work *work)
{
	struct job job = { .work = work };

	pthread_mutex_lock(&lock);
	*last = &job;
	last = &job.next;
	pthread_cond_signal(&posted);
	while (!job.done)
		pthread_cond_wait(&finished, &lock);
	pthread_mutex_unlock(&lock);
}
