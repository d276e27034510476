/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that a test sets: they live beside the slots, so that a reader counts its calls without a writer's lock. */
#include <errno.h>

#include "layout.h"

enum { FREE, WRITING, SET };

int sim_fault_set(struct sim *sim, const struct sim_fault *fault)
{
	for (uint32_t i = 0; i < SIM_MAX_FAULTS; i++) {
		struct sim_live_fault *f = &sim_live(sim)->faults[i];
		uint32_t expected = FREE;

		if (!atomic_compare_exchange_strong(&f->state, &expected, WRITING))
			continue;
		f->fault = *fault;
		atomic_store(&f->calls, 0);
		atomic_store(&f->state, SET);
		return 0;
	}
	return -ENOSPC;
}

void sim_faults_clear(struct sim *sim)
{
	for (uint32_t i = 0; i < SIM_MAX_FAULTS; i++)
		atomic_store(&sim_live(sim)->faults[i].state, FREE);
}

/* Whether this call is one of those that the fault is for; the last one frees its place. */
static bool count(struct sim_live_fault *f)
{
	uint32_t number = atomic_fetch_add(&f->calls, 1) + 1;

	if (number >= f->fault.nth + f->fault.times - 1)
		atomic_store(&f->state, FREE);
	return number >= f->fault.nth && number < f->fault.nth + f->fault.times;
}

bool sim_fault_hit(struct sim *sim, enum sim_call call, int32_t gpu, struct sim_fault *hit)
{
	for (uint32_t i = 0; i < SIM_MAX_FAULTS; i++) {
		struct sim_live_fault *f = &sim_live(sim)->faults[i];

		if (atomic_load(&f->state) != SET || f->fault.call != call)
			continue;
		if (f->fault.gpu >= 0 && f->fault.gpu != gpu)
			continue;
		*hit = f->fault;
		if (count(f))
			return true;
	}
	return false;
}
