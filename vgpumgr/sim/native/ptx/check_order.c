/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which accesses of other threads a thread may rely on: vector clocks. A thread's clock counts its synchronisations; with
 * each one it learns the clocks of those that it synchronises with, and what they had learned. A barrier that all living
 * threads of a block wait at begins a new epoch, in which nothing of the old one has to be known.
 *
 * Threads mostly synchronise by whole warps and blocks, for which the clocks of the warp's lanes are enough. The others'
 * (`far`) are kept once a barrier with a count or an mbarrier is used.
 */
#include "checks.h"

#include <stdlib.h>

static uint32_t *far_of(const struct checker *c, uint32_t thread)
{
	return c->far + (size_t)thread * c->n_threads;
}

bool order_known(const struct checker *c, uint32_t thread, const struct touch *touch)
{
	if (touch->epoch != c->epoch || touch->thread == thread)
		return true;
	if (touch->thread / WARP == thread / WARP)
		return c->seen[thread][touch->thread % WARP] >= touch->clock;
	return c->far_used && far_of(c, thread)[touch->thread] >= touch->clock;
}

void order_start(struct checker *c)
{
	c->epoch++;
	memset(c->seen, 0, c->n_threads * sizeof *c->seen);
	for (uint32_t k = 0; k < c->n_threads; k++)
		c->clock[k] = 1;
	if (c->far_used)
		memset(c->far, 0, (size_t)c->n_threads * c->n_threads * sizeof *c->far);
	c->far_used = false;
}

void order_all(struct checker *c)
{
	order_start(c);
	for (uint32_t k = 0; k < BARRIERS; k++)
		if (c->arrived[k])
			memset(c->arrived[k], 0, c->n_threads * sizeof *c->clock);
	for (uint32_t k = 0; k < MBARRIERS; k++) {
		if (!c->mbarriers[k].arriving)
			continue;
		memset(c->mbarriers[k].arriving, 0, c->n_threads * sizeof *c->clock);
		memset(c->mbarriers[k].ended, 0, c->n_threads * sizeof *c->clock);
	}
}

static void raise_to(uint32_t *known, const uint32_t *other, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
		known[k] = known[k] > other[k] ? known[k] : other[k];
}

static void join_far(struct checker *c, uint32_t first, uint32_t members)
{
	uint32_t *all = order_view(c);

	if (!all)
		return;
	EACH_LANE(k, members)
		raise_to(all, far_of(c, first + k), c->n_threads);
	EACH_LANE(k, members)
		memcpy(far_of(c, first + k), all, c->n_threads * sizeof *all);
	free(all);
}

void order_join_lanes(struct checker *c, uint32_t warp, uint32_t members)
{
	uint32_t all[WARP] = { 0 }, first = warp * WARP;

	EACH_LANE(k, members)
	{
		c->seen[first + k][k] = c->clock[first + k]++;
		raise_to(all, c->seen[first + k], WARP);
	}
	EACH_LANE(k, members)
		memcpy(c->seen[first + k], all, sizeof all);
	if (c->far_used)
		join_far(c, first, members);
}

uint32_t *order_view(const struct checker *c)
{
	return calloc(c->n_threads, sizeof(uint32_t));
}

/* From now on the clocks of other warps are known, too. Without memory for them nothing can be said: all counts as ordered. */
static bool use_far(struct checker *c)
{
	if (!c->far)
		c->far = calloc((size_t)c->n_threads * c->n_threads, sizeof *c->far);
	if (!c->far) {
		c->checks &= ~(uint32_t)PTX_CHECK_RACE;
		return false;
	}
	c->far_used = true;
	return true;
}

/* What `thread` has done and seen goes into the view, for those who take it. */
void order_arrive(struct checker *c, uint32_t *view, uint32_t thread)
{
	uint32_t first = thread / WARP * WARP, n = c->n_threads - first < WARP ? c->n_threads - first : WARP;

	if (!view || !use_far(c))
		return;
	raise_to(view, far_of(c, thread), c->n_threads);
	c->seen[thread][thread % WARP] = c->clock[thread]++;
	raise_to(view + first, c->seen[thread], n);
}

void order_take(struct checker *c, const uint32_t *view, uint32_t thread)
{
	uint32_t first = thread / WARP * WARP, n = c->n_threads - first < WARP ? c->n_threads - first : WARP;

	if (!view || !use_far(c))
		return;
	raise_to(far_of(c, thread), view, c->n_threads);
	raise_to(c->seen[thread], view + first, n);
}

static struct mbarrier_view *mbarrier_find(struct checker *c, uint64_t at)
{
	for (uint32_t k = 0; k < MBARRIERS; k++) {
		struct mbarrier_view *m = &c->mbarriers[k];

		if (m->arriving && m->at == at)
			return m;
		if (m->arriving)
			continue;
		*m = (struct mbarrier_view){ at, order_view(c), order_view(c) };
		if (m->arriving && m->ended)
			return m;
		free(m->arriving);
		free(m->ended);
		*m = (struct mbarrier_view){ 0 };
		break;
	}
	c->checks &= ~(uint32_t)PTX_CHECK_RACE; /* more than can be followed: nothing is said rather than something wrong */
	return NULL;
}

void order_mbarrier_free(struct checker *c)
{
	for (uint32_t k = 0; k < MBARRIERS; k++) {
		free(c->mbarriers[k].arriving);
		free(c->mbarriers[k].ended);
		c->mbarriers[k] = (struct mbarrier_view){ 0 };
	}
}

void check_mbarrier(struct thread *t, uint64_t addr, enum mbarrier_event event)
{
	struct checker *c = t->worker->checker;
	struct mbarrier_view *m;

	c->acts[t->index]++;
	if (!(c->checks & PTX_CHECK_RACE))
		return;
	m = mbarrier_find(c, addr & (WINDOW(1) - 1));
	if (!m)
		return;
	switch (event) {
	case MBARRIER_INIT:
		memset(m->arriving, 0, c->n_threads * sizeof *m->arriving);
		memset(m->ended, 0, c->n_threads * sizeof *m->ended);
		break;
	case MBARRIER_ARRIVE:
		order_arrive(c, m->arriving, t->index);
		break;
	case MBARRIER_PHASE:
		raise_to(m->ended, m->arriving, c->n_threads);
		break;
	case MBARRIER_WAITED:
		order_take(c, m->ended, t->index);
	}
}
