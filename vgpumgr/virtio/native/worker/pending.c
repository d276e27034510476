/* SPDX-License-Identifier: Apache-2.0 */
/* How many ends are on their way (frees.c), for those who wait for what they give back. */
#include "session.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t done;
	uint64_t begun, ended; /* so many ever */
} pending = { .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };

bool wk_pending_begin(void)
{
	bool begun;

	pthread_mutex_lock(&pending.lock);
	begun = pending.begun - pending.ended < WK_FREES;
	pending.begun += begun;
	pthread_mutex_unlock(&pending.lock);
	return begun;
}

void wk_pending_end(void)
{
	pthread_mutex_lock(&pending.lock);
	pending.ended++;
	pthread_cond_broadcast(&pending.done);
	pthread_mutex_unlock(&pending.lock);
}

bool wk_frees_wait(void)
{
	uint64_t until;
	bool any;

	pthread_mutex_lock(&pending.lock);
	until = pending.begun;
	any = pending.ended < until;
	while (pending.ended < until)
		pthread_cond_wait(&pending.done, &pending.lock);
	pthread_mutex_unlock(&pending.lock);
	return any;
}

bool wk_pending_any(void)
{
	bool any;

	pthread_mutex_lock(&pending.lock);
	any = pending.ended < pending.begun;
	pthread_mutex_unlock(&pending.lock);
	return any;
}
