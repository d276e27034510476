/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that wait for values in memory. One that has got to its wait has nothing on the device, and may wait for ever: an
 * event before the wait and one behind it tell. What is known of a stream is under the lock of share.c's list.
 */
#include <stdlib.h>

#include "share_waits.h"

enum { WAITS = 64 };             /* of a stream; those beyond count as work, which others wait for no longer than for any */

struct wk_wait {
	struct wk_wait *next;
	CUevent before, behind;
};

void wk_wait_end(struct wk_wait *wait)
{
	if (wait->before)
		wk_driver.cuEventDestroy_v2(wait->before);
	if (wait->behind)
		wk_driver.cuEventDestroy_v2(wait->behind);
	free(wait);
}

static bool record(CUevent *event, const struct wk_object *stream)
{
	return wk_driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
	       wk_driver.cuEventRecordWithFlags(*event, wk_raw(stream), 0) == CUDA_SUCCESS;
}

struct wk_wait *wk_wait_begin(const struct wk_object *stream)
{
	struct wk_wait *wait = calloc(1, sizeof(*wait));

	if (!wait || record(&wait->before, stream))
		return wait;
	wk_wait_end(wait);
	return NULL;
}

bool wk_wait_follow(struct wk_wait *wait, const struct wk_object *stream)
{
	return record(&wait->behind, stream);
}

bool wk_waits_add(struct wk_object *target, struct wk_wait *wait)
{
	struct wk_wait **last = &target->waits;
	int count = 0;

	for (; *last; last = &(*last)->next)
		count++;
	if (count >= WAITS)
		return false;
	*last = wait;
	return true;
}

bool wk_waits_hold(struct wk_object *target)
{
	struct wk_wait *first;

	while ((first = target->waits) && wk_driver.cuEventQuery(first->behind) == CUDA_SUCCESS) {
		target->waits = first->next;
		wk_wait_end(first);
	}
	return first && wk_driver.cuEventQuery(first->before) == CUDA_SUCCESS;
}

void wk_waits_drop(struct wk_object *target, bool with_events)
{
	struct wk_wait *wait;

	while ((wait = target->waits)) {
		target->waits = wait->next;
		if (!with_events) /* they have ended with their context */
			wait->before = wait->behind = NULL;
		wk_wait_end(wait);
	}
}
