/* SPDX-License-Identifier: Apache-2.0 */
/* bar and barrier: sixteen barriers for each block. A thread that has exited is waited for no longer. */
#include "checks.h"

enum { BAR_SYNC, BAR_AND, BAR_OR, BAR_POPC, BAR_ARRIVE };

static HANDLER(run_bar)
{
	uint32_t n = (u32)r[i->a];
	struct barrier *bar;

	if (n >= BARRIERS && t->worker->checker)
		check_number(t, i, n);
	if (n >= BARRIERS)
		return fault(t, i, PTX_TRAP, "barrier %u of %d", n, BARRIERS);
	bar = &t->worker->barriers[n];
	if (t->worker->checker)
		check_arrive(t, i, n, i->flags != BAR_ARRIVE);
	bar->arrived++;
	if (i->b)
		bar->expected = (u32)r[i->b] ? (u32)r[i->b] : 1;
	if (i->flags == BAR_ARRIVE)
		return i + 1;
	if (i->flags != BAR_SYNC)
		bar->count += r[i->c] & 1;
	t->pc = i;
	t->barrier = n;
	t->state = THREAD_BARRIER;
	return NULL;
}

/* A whole fragment at one barrier. */
static const struct insn *run_bar_wide(struct fragment *g, const struct insn *i)
{
	const uint64_t *numbers = g->frame + i->a, *expected = g->frame + i->b;
	uint32_t first = (uint32_t)__builtin_ctz(g->mask), n = (u32)numbers[first];
	bool same = n < BARRIERS && i->flags == BAR_SYNC;

	EACH_LANE(k, g->mask)
		same &= (u32)numbers[k] == n && (!i->b || (u32)expected[k] == (u32)expected[first]);
	if (!same)
		return simd_each(g, i);
	g->worker->barriers[n].arrived += (u32)__builtin_popcount(g->mask);
	if (i->b)
		g->worker->barriers[n].expected = (u32)expected[first] ? (u32)expected[first] : 1;
	EACH_LANE(k, g->mask)
	{
		g->lanes[k].barrier = n;
		g->lanes[k].state = THREAD_BARRIER;
	}
	return simd_stop(g, i);
}
WIDE_FORM(run_bar, run_bar_wide)

static void open_barrier(struct worker *w, uint32_t n)
{
	struct barrier *bar = &w->barriers[n];
	uint32_t waiting = 0;

	for (uint32_t k = 0; k < w->n_threads; k++)
		waiting += w->threads[k].state == THREAD_BARRIER && w->threads[k].barrier == n;
	if (w->checker)
		check_open(w, n, waiting);
	for (uint32_t k = 0; k < w->n_threads; k++) {
		struct thread *t = &w->threads[k];
		const uint32_t results[] = { 0, bar->count == waiting, bar->count != 0, bar->count };

		if (t->state != THREAD_BARRIER || t->barrier != n)
			continue;
		if (t->pc->flags != BAR_SYNC)
			t->r[t->pc->d] = results[t->pc->flags];
		t->pc++;
		t->state = THREAD_READY;
	}
	*bar = (struct barrier){ 0 };
}

void barriers_check(struct worker *w)
{
	for (uint32_t n = 0; n < BARRIERS; n++) {
		struct barrier *bar = &w->barriers[n];

		if (bar->arrived && bar->arrived >= (bar->expected ? bar->expected : w->alive))
			open_barrier(w, n);
	}
}

static int take_kind(struct statement *s)
{
	static const char *const reductions[] = { "and", "or", "popc", NULL };
	int n;

	if (take(s, "sync"))
		return BAR_SYNC;
	if (take(s, "arrive"))
		return BAR_ARRIVE;
	if (!take(s, "red"))
		return -1;
	n = take_one(s, reductions);
	return n < 0 ? -1 : BAR_AND + n;
}

DECODER(bar)
{
	bool cluster = s->variant && s->n_modifiers && text_is(s->modifiers[0], "cluster");
	int kind = cluster ? -1 : take_kind(s);
	bool red = kind > BAR_SYNC && kind < BAR_ARRIVE;
	uint32_t first = red, last = s->n - red, c = 0;
	enum type type = red ? take_type(s) : T_NONE;
	bool aligned;
	struct insn *i;

	if (!s->variant && take(s, "warp"))
		return kind == BAR_SYNC && decode_warp_barrier(b, s);
	if (cluster)
		return decode_cluster_barrier(b, s);
	take(s, "cta");
	aligned = take(s, "aligned") || !s->variant;
	if (kind < 0 || !all_taken(s) || (red && type != (kind == BAR_POPC ? T_U32 : T_PRED)))
		return false;
	operands(b, s, kind == BAR_ARRIVE ? 2 : 1 + 2 * red, 2 + 2 * red);
	if (red)
		c = src_predicate(b, s, last);
	i = emit_visible(b, s, run_bar);
	i->flags = (uint16_t)kind;
	i->size = aligned; /* all lanes of a warp come to it together */
	i->a = src(b, s, first, T_U32);
	i->b = last - first > 1 ? src(b, s, first + 1, T_U32) : 0;
	i->c = c;
	i->d = red ? dst(b, s, 0, type) : b->sink;
	return true;
}
