/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed in the order of a stream. It is the device's until the stream gets there, so under a limit it is charged
 * until then, which a host function tells; else a guest that holds up its streams could have as much as it likes.
 */
#include <stdlib.h>
#include <time.h>

#include "transport/worker_limits.h"
#include "session.h"

enum { WAIT_S = 4 };

struct freed {
	struct freed *next;
	uint64_t number, context, bytes;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t reached;
	struct freed *first, **last;
	uint64_t given, ended;     /* so many ever */
} freed = { .lock = PTHREAD_MUTEX_INITIALIZER, .reached = PTHREAD_COND_INITIALIZER, .last = &freed.first };

/* Under the lock. */
static void drop(struct freed **at)
{
	struct freed *f = *at;

	*at = f->next;
	if (!f->next)
		freed.last = at;
	vg_refund(VG_LIMIT_DEVICE_MEMORY, f->bytes);
	free(f);
	freed.ended++;
	pthread_cond_broadcast(&freed.reached);
}

/* By number: one that went with its context is no longer there. */
static void end(uint64_t number)
{
	struct freed **at = &freed.first;

	pthread_mutex_lock(&freed.lock);
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	if (*at)
		drop(at);
	pthread_mutex_unlock(&freed.lock);
}

static void reached(void *number)
{
	end((uint64_t)number);
}

void wk_freed_in_order(struct wk_object *memory, CUstream stream)
{
	struct freed *f;
	uint64_t number;

	if (vg_limit(VG_LIMIT_DEVICE_MEMORY) == VG_UNLIMITED)
		return;
	f = malloc(sizeof(*f));
	if (!f)
		return;
	pthread_mutex_lock(&freed.lock);
	number = ++freed.given;
	*f = (struct freed){ NULL, number, memory->context->number, memory->bytes };
	*freed.last = f;
	freed.last = &f->next;
	pthread_mutex_unlock(&freed.lock);
	memory->bytes = 0;
	if (wk_driver.cuLaunchHostFunc(stream, reached, (void *)number) != CUDA_SUCCESS)
		end(number);
}

void wk_freed_with(const struct wk_object *context)
{
	struct freed **at = &freed.first;

	pthread_mutex_lock(&freed.lock);
	while (*at) {
		if ((*at)->context == context->number)
			drop(at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&freed.lock);
}

bool wk_freed_any(void)
{
	bool any;

	pthread_mutex_lock(&freed.lock);
	any = freed.given != freed.ended;
	pthread_mutex_unlock(&freed.lock);
	return any;
}

bool wk_freed_wait(void)
{
	struct timespec until;
	uint64_t ended;
	int error = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&freed.lock);
	ended = freed.ended;
	while (!error && freed.given != freed.ended && freed.ended == ended)
		error = pthread_cond_timedwait(&freed.reached, &freed.lock, &until);
	ended = freed.ended - ended;
	pthread_mutex_unlock(&freed.lock);
	return ended != 0;
}
