/* SPDX-License-Identifier: Apache-2.0 */
/* bar and barrier: sixteen barriers for each block. A thread that has exited is waited for no longer. */
#include "ops.h"

enum { BAR_SYNC, BAR_AND, BAR_OR, BAR_POPC, BAR_ARRIVE };

static HANDLER(run_bar)
{
	uint32_t n = (u32)r[i->a];
	struct barrier *bar;

	if (n >= BARRIERS)
		return fault(t, i, PTX_TRAP, "barrier %u of %d", n, BARRIERS);
	bar = &t->worker->barriers[n];
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

static void open_barrier(struct worker *w, uint32_t n)
{
	struct barrier *bar = &w->barriers[n];
	uint32_t waiting = 0;

	for (uint32_t k = 0; k < w->n_threads; k++)
		waiting += w->threads[k].state == THREAD_BARRIER && w->threads[k].barrier == n;
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
	int kind = take_kind(s);
	bool red = kind > BAR_SYNC && kind < BAR_ARRIVE;
	uint32_t first = red, last = s->n - red, c = 0;
	enum type type = red ? take_type(s) : T_NONE;
	struct insn *i;

	if (!s->variant && take(s, "warp"))
		return kind == BAR_SYNC && decode_warp_barrier(b, s);
	take(s, "cta");
	take(s, "aligned");
	if (kind < 0 || !all_taken(s) || (red && type != (kind == BAR_POPC ? T_U32 : T_PRED)))
		return false;
	operands(b, s, kind == BAR_ARRIVE ? 2 : 1 + 2 * red, 2 + 2 * red);
	if (red)
		c = src_predicate(b, s, last);
	i = emit_visible(b, s, run_bar);
	i->flags = (uint16_t)kind;
	i->a = src(b, s, first, T_U32);
	i->b = last - first > 1 ? src(b, s, first + 1, T_U32) : 0;
	i->c = c;
	i->d = red ? dst(b, s, 0, type) : b->sink;
	return true;
}
