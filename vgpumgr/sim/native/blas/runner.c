/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that computes. A stream's host function may not call the driver, so it leaves its work to this thread and waits
 * for it; the thread asks the driver which memory there is. It is the only one that calls OpenBLAS.
 */
#include <pthread.h>
#include <signal.h>

#include "blas.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static struct work *first, **last = &first;
static bool started;

static struct work *take(void)
{
	struct work *w;

	while (!first)
		pthread_cond_wait(&posted, &lock);
	w = first;
	first = w->next;
	if (!first)
		last = &first;
	return w;
}

static void *serve(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct work *w = take();

		pthread_mutex_unlock(&lock);
		bl_driver.cuCtxSetCurrent(w->context->handle);
		w->run(w);
		bl_driver.cuCtxSetCurrent(NULL);
		pthread_mutex_lock(&lock);
		w->done = true;
		pthread_cond_broadcast(&finished);
	}
	return NULL;
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
	if (!error)
		pthread_detach(thread);
	return error;
}

int bl_runner_start(void)
{
	pthread_mutex_lock(&lock);
	if (!started)
		started = !start();
	pthread_mutex_unlock(&lock);
	return started ? BL_SUCCESS : BL_NOT_INITIALIZED;
}

void bl_runner_run(struct work *work)
{
	pthread_mutex_lock(&lock);
	work->done = false;
	work->next = NULL;
	*last = work;
	last = &work->next;
	pthread_cond_signal(&posted);
	while (!work->done)
		pthread_cond_wait(&finished, &lock);
	pthread_mutex_unlock(&lock);
}
