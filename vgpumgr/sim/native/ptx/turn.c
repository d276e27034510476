/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warp-wide engine: which lanes run together.
 *
 * Lanes that part at a branch wait for each other at its immediate post-dominator (joins.c), their join; joins are nested. Of the
 * fragments that can run, the one with the deepest call and there the lowest program counter does, as lane by lane
 * (schedule.c), and fragments on their way to the same join meet earlier where they stand at the same instruction.
 *
 * No lane waits at a join for ever: where the others can run no more in this turn (they have used their fuel, or stand
 * at a barrier), those at the join go on by themselves. So a lane that spins until another one stores sees the store.
 */
#include "simd.h"

static bool can_run(const struct thread *t, const struct warp *w)
{
	return t->state == THREAD_READY && t->fuel && !(w->waiting >> t->lane & 1);
}

void simd_start(struct worker *w, uint32_t warp)
{
	struct warp *v = &w->warps[warp];
	uint32_t n = warp_lanes(w, warp);

	v->exited = n < WARP ? ~(uint32_t)0 << n : 0;
	v->waiting = 0;
	memset(v->next, 0, sizeof v->next);
	memset(v->joins, 0, sizeof v->joins);
}

/* A member that has exited is waited for no longer. */
static void complete_joins(struct warp *w)
{
	for (uint32_t n = 1; n < JOINS; n++)
		if (simd_complete(w, &w->joins[n]))
			simd_let_go(w, &w->joins[n]);
}

/* Of those that wait the ones with the deepest call and the lowest program counter go on. False: none waits. */
static bool go_on(struct warp *w, const struct thread *lanes)
{
	const struct thread *best = NULL;

	EACH_LANE(k, w->waiting)
	{
		const struct thread *t = &lanes[k];

		if (t->fuel && (!best || t->depth > best->depth || (t->depth == best->depth && t->pc < best->pc)))
			best = t;
	}
	if (best)
		simd_let_go(w, &w->joins[w->next[best->lane]]);
	return best;
}

static void fragment_start(struct fragment *g, struct thread *t, uint32_t next)
{
	g->mask = 1u << t->lane;
	g->frame = t->r - t->lane;
	g->depth = t->depth;
	g->fuel = t->fuel;
	g->next = next;
	g->function = t->function;
}

static void lower_limit(struct fragment *g, const struct insn *pc)
{
	if (!g->limit || pc < g->limit)
		g->limit = pc;
}

/* The next fragment to run; where it stands, or NULL. */
static const struct insn *fragment_find(struct fragment *g)
{
	struct warp *w = g->warp;
	const struct insn *pc = NULL;

	g->mask = g->used = 0;
	g->limit = g->join = NULL;
	EACH_LANE(k, ~(w->exited | w->waiting))
	{
		struct thread *t = &g->lanes[k];

		if (!can_run(t, w))
			continue;
		if (!g->mask || t->depth > g->depth) {
			g->limit = NULL;
			fragment_start(g, t, w->next[k]);
			pc = t->pc;
		} else if (t->depth < g->depth) {
			continue;
		} else if (t->pc == pc && t->r - k == g->frame && w->next[k] == g->next) {
			g->mask |= 1u << k;
			g->fuel = t->fuel < g->fuel ? t->fuel : g->fuel;
		} else if (t->pc < pc) {
			lower_limit(g, pc);
			fragment_start(g, t, w->next[k]);
			pc = t->pc;
		} else if (t->pc > pc) {
			lower_limit(g, t->pc);
		}
	}
	g->whole = !~(g->mask | w->exited);
	if (g->next && w->joins[g->next].depth == g->depth)
		g->join = w->joins[g->next].at;
	return g->mask ? pc : NULL;
}

/* A lane alone has nobody to share an instruction with: its handlers are quicker. */
static void run_single(struct fragment *g, const struct insn *i)
{
	struct thread *t = &g->lanes[__builtin_ctz(g->mask)];

	t->fuel = t->fuel > g->used ? t->fuel - g->used : 1;
	g->used = 0;
	do
		i = i->run(t, t->r, i);
	while (i && i != g->join && (!g->limit || i < g->limit) && t->depth == g->depth);
	if (t->state == THREAD_EXITED)
		g->warp->exited |= g->mask;
	if (i && i == g->join && t->depth == g->depth)
		simd_arrive(g, g->mask);
	else if (i)
		t->pc = i;
}

static void run_fragment(struct fragment *g, const struct insn *i)
{
	while (i != g->join) {
		if (!(g->mask & (g->mask - 1))) {
			run_single(g, i);
			return;
		}
		i = i->wide(g, i);
		if (!i)
			return;
		if (g->limit && i >= g->limit && i != g->join) {
			simd_stop(g, i);
			return;
		}
	}
	simd_arrive(g, g->mask);
}

bool simd_turn(struct worker *w, uint32_t warp, bool *progress)
{
	struct fragment g = { .worker = w, .warp = &w->warps[warp], .lanes = &w->threads[warp * WARP] };
	const struct insn *i;

	for (uint32_t k = 0; k < WARP; k++)
		g.lanes[k].fuel = is_cooperative(w) ? FUEL_TOGETHER : FUEL;
	do {
		while ((i = fragment_find(&g))) {
			uint32_t lane = (uint32_t)__builtin_ctz(g.mask);

			*progress = true;
			run_fragment(&g, i);
			if (stopped(w))
				return false;
			if (g.lanes[lane].state == THREAD_CONVERGE || g.lanes[lane].state == THREAD_WARP)
				warp_step(w, warp);
			complete_joins(g.warp);
		}
	} while (warp_step(w, warp) || go_on(g.warp, g.lanes));
	return true;
}
