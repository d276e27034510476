/* SPDX-License-Identifier: Apache-2.0 */
/* Where the lanes of a fragment go: together, apart, or to the join where they wait for each other. */
#include "simd.h"

/* ---- joins */

void simd_let_go(struct warp *w, struct join *j)
{
	EACH_LANE(k, j->arrived)
		w->next[k] = (uint8_t)j->outer;
	w->waiting &= ~j->arrived;
	j->members &= ~j->arrived;
	j->arrived = 0;
	j->used = j->members & ~w->exited;
}

static void leave(struct fragment *g, uint32_t lanes, const struct insn *at)
{
	EACH_LANE(k, lanes)
	{
		struct thread *t = &g->lanes[k];

		t->pc = at;
		t->fuel = t->fuel > g->used ? t->fuel - g->used : 0;
	}
}

void simd_arrive(struct fragment *g, uint32_t lanes)
{
	struct join *j = &g->warp->joins[g->next];

	leave(g, lanes, j->at);
	j->arrived |= lanes;
	g->warp->waiting |= lanes;
	if (simd_complete(g->warp, j))
		simd_let_go(g->warp, j);
}

/* Those of `g` will wait for each other at `at`, unless they do already. */
static void join_at(struct fragment *g, const struct insn *at)
{
	struct warp *w = g->warp;
	uint32_t n = 1;

	if (g->join == at)
		return;
	while (n < JOINS && w->joins[n].used)
		n++;
	if (n == JOINS)
		return;
	w->joins[n] = (struct join){ at, g->depth, g->mask, 0, g->next, true };
	EACH_LANE(k, g->mask)
		w->next[k] = (uint8_t)n;
	g->next = n;
	g->join = at;
}

/* ---- fragments */

const struct insn *simd_stop(struct fragment *g, const struct insn *at)
{
	leave(g, g->mask, at);
	return NULL;
}

static const struct insn *narrow(struct fragment *g, uint32_t lanes, const struct insn *at)
{
	g->mask = lanes;
	g->whole = false;
	return at;
}

const struct insn *simd_part(struct fragment *g, const struct insn *i, uint32_t first, const struct insn *a, const struct insn *b)
{
	const struct function *f = g->function;
	uint32_t rest = g->mask & ~first, at = f->joins[i - f->code];

	if (at)
		join_at(g, f->code + at);
	if (a == g->join) {
		simd_arrive(g, first);
		return narrow(g, rest, b);
	}
	if (b == g->join) {
		simd_arrive(g, rest);
		return narrow(g, first, a);
	}
	if (a > b)
		return simd_part(g, i, rest, b, a);
	leave(g, rest, b);
	if (!g->limit || b < g->limit)
		g->limit = b;
	return narrow(g, first, a);
}

/* The lanes' places after they have parted any way. */
static const struct insn *scatter(struct fragment *g, const struct insn *i, const struct insn *const *next)
{
	const struct function *f = g->function;
	uint32_t at = f->joins[i - f->code];

	if (at && g->lanes[__builtin_ctz(g->mask)].depth == g->depth)
		join_at(g, f->code + at);
	EACH_LANE(k, g->mask)
		leave(g, 1u << k, next[k] ? next[k] : g->lanes[k].pc);
	return NULL;
}

const struct insn *simd_each(struct fragment *g, const struct insn *i)
{
	const struct insn *next[WARP], *first = NULL;
	bool together = true;

	EACH_LANE(k, g->mask)
	{
		struct thread *t = &g->lanes[k];

		next[k] = i->run(t, t->r, i);
		if (!first)
			first = next[k];
		together &= next[k] && next[k] == first && t->depth == g->depth;
		if (t->state == THREAD_EXITED)
			g->warp->exited |= 1u << k;
		if (t->fuel < g->fuel)
			g->fuel = t->fuel;
	}
	return together ? first : scatter(g, i, next);
}
