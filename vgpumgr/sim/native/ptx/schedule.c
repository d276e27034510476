/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lane of a warp runs next.
 *
 * In step (the usual schedule): of the lanes that can run, those with the deepest call and there those with the lowest
 * program counter run one instruction after the other together, until they part, or others stand where they come to. As
 * compilers lay code out in the order in which it runs, lanes that parted meet again where their ways join. So programs
 * that rely on lanes in step (without __syncwarp) find them so. Fuel ends a turn: a lane that spins until another one
 * stores lets it run.
 *
 * At random (ptx_launch.seed): a random thread of the block runs a few instructions by itself, then another. That is as
 * legal on GPUs since compute capability 7.0 (PTX ISA 3.1, independent thread scheduling), and shows what lacks
 * synchronisation.
 */
#include "ops.h"

enum { RANDOM_STEPS = 24, RANDOM_TURNS = 64 };

/* Lanes that run together. */
struct group {
	struct thread *lanes[WARP];
	uint32_t n, depth;
	const struct insn *pc;
	const struct insn *limit; /* the lowest one above at which another lane of this depth stands, or NULL */
};

bool stopped(struct worker *w)
{
	struct grid *g = w->grid;

	if (g->launch->pass)
		g->launch->pass(g->launch->pass_argument, 0);
	if (g->launch->cancel && *g->launch->cancel)
		fault(&w->threads[0], w->threads[0].pc, PTX_CANCELLED, "cancelled");
	return g->stop;
}

static bool can_run(const struct thread *t)
{
	return t->state == THREAD_READY && t->fuel;
}

static void group_restart(struct group *g, struct thread *t)
{
	g->n = 1;
	g->lanes[0] = t;
	g->pc = t->pc;
	g->depth = t->depth;
}

static void lower_limit(struct group *g, const struct insn *pc)
{
	if (!g->limit || pc < g->limit)
		g->limit = pc;
}

static bool group_find(struct group *g, struct thread *lanes, uint32_t n)
{
	g->n = g->depth = 0;
	g->pc = g->limit = NULL;
	for (uint32_t k = 0; k < n; k++) {
		struct thread *t = &lanes[k];

		if (!can_run(t))
			continue;
		if (!g->n || t->depth > g->depth) {
			g->limit = NULL;
			group_restart(g, t);
		} else if (t->depth < g->depth) {
			continue;
		} else if (t->pc == g->pc) {
			g->lanes[g->n++] = t;
		} else if (t->pc < g->pc) {
			lower_limit(g, g->pc);
			group_restart(g, t);
		} else {
			lower_limit(g, t->pc);
		}
	}
	return g->n;
}

static bool goes_on(const struct group *g, const struct insn *next)
{
	return (!g->limit || next < g->limit) && g->lanes[0]->depth == g->depth;
}

static void run_one(const struct group *g)
{
	struct thread *t = g->lanes[0];
	const struct insn *i = g->pc;

	do
		i = i->run(t, t->r, i);
	while (i && goes_on(g, i));
	if (i)
		t->pc = i;
}

static void run_alone(struct thread *t)
{
	const struct insn *i = t->pc;

	do
		i = i->run(t, t->r, i);
	while (i);
}

/* One instruction for each lane. False: they part. */
static bool step_lanes(const struct group *g, const struct insn *i, const struct insn **next)
{
	uintptr_t parted = 0;

	for (uint32_t k = 0; k < g->n; k++) {
		next[k] = i->run(g->lanes[k], g->lanes[k]->r, i);
		parted |= (uintptr_t)next[k] ^ (uintptr_t)next[0];
	}
	return !parted;
}

/* Up to `end` no lane notices another one, so that each may go there by itself. */
static bool run_span(const struct group *g, const struct insn *i, const struct insn *end, const struct insn **next)
{
	uintptr_t parted = 0;

	for (uint32_t k = 0; k < g->n; k++) {
		struct thread *t = g->lanes[k];
		uint64_t *r = t->r;
		const struct insn *at = i;

		do
			at = at->run(t, r, at);
		while (at < end);
		next[k] = at;
		parted |= (uintptr_t)at ^ (uintptr_t)next[0];
	}
	return !parted;
}

/* A lane that stops has its program counter set by its handler. */
static void run_together(const struct group *g)
{
	const struct insn *next[WARP], *i = g->pc;
	bool together;

	do {
		const struct insn *end = i + i->span;

		if (g->limit && g->limit < end)
			end = g->limit;
		together = i->span > 1 ? run_span(g, i, end, next) : step_lanes(g, i, next);
		i = next[0];
	} while (together && i && goes_on(g, i));
	for (uint32_t k = 0; k < g->n; k++)
		if (next[k])
			g->lanes[k]->pc = next[k];
}

static void run_group(const struct group *g, uint32_t n)
{
	if (n == 1)
		run_alone(g->lanes[0]);
	else if (g->n == 1)
		run_one(g);
	else
		run_together(g);
}

bool warp_turn(struct worker *w, uint32_t warp, bool *progress)
{
	struct thread *lanes = &w->threads[warp * WARP];
	uint32_t n = warp_lanes(w, warp);
	struct group g;

	for (uint32_t k = 0; k < n; k++)
		lanes[k].fuel = is_cooperative(w) ? FUEL_TOGETHER : FUEL;
	do {
		while (group_find(&g, lanes, n)) {
			*progress = true;
			run_group(&g, n);
			if (stopped(w))
				return false;
			if (g.lanes[0]->state == THREAD_CONVERGE || g.lanes[0]->state == THREAD_WARP)
				warp_step(w, warp);
		}
	} while (warp_step(w, warp));
	return true;
}

static uint32_t pick(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % n);
}

static void run_some(struct thread *t, uint32_t steps)
{
	const struct insn *i = t->pc;

	t->fuel = FUEL;
	do
		i = i->run(t, t->r, i);
	while (i && --steps);
	if (i)
		t->pc = i;
}

bool random_turn(struct worker *w, bool *progress)
{
	struct thread *ready[MAX_BLOCK];

	for (uint32_t turns = 0; turns < RANDOM_TURNS || !is_cooperative(w); turns++) {
		uint32_t n = 0;
		struct thread *t;

		for (uint32_t k = 0; k < w->n_threads; k++)
			if (w->threads[k].state == THREAD_READY)
				ready[n++] = &w->threads[k];
		if (!n)
			return true;
		*progress = true;
		do {
			t = ready[pick(&w->random, n)];
			run_some(t, 1 + pick(&w->random, RANDOM_STEPS));
			if (stopped(w))
				return false;
		} while (t->state == THREAD_READY && (++turns < RANDOM_TURNS || !is_cooperative(w)));
		if (t->state == THREAD_BARRIER || t->state == THREAD_EXITED)
			barriers_check(w);
		warp_step(w, t->warp);
	}
	return true;
}
