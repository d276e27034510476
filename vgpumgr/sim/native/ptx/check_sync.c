/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of synchronisation. A lane that has ended counts as one that has come to a barrier, if it has done nothing (neither
 * accessed memory nor synchronised) after the first lane of its warp came there: so a kernel whose surplus threads
 * return at once is right, and one whose lanes pass the barrier by is not.
 */
#include "checks.h"

#include <stdlib.h>

static bool wanted(const struct worker *w)
{
	return w->checker->checks & PTX_CHECK_SYNC;
}

/* ---- warps */

static void report_mask(struct worker *w, const struct thread *t, uint32_t ended)
{
	FILE *out = finding_open((struct thread *)t, t->pc, FINDING_MASK);
	const uint32_t *tid;

	if (!out)
		return;
	fprintf(out, "========= sync: the member mask 0x%08x names lanes that have ended (0x%08x)\n", t->mask, ended);
	finding_place(out, w, t->index, "synchronises its warp", t->pc);
	tid = w->threads[t->index - t->lane + (uint32_t)__builtin_ctz(ended)].tid;
	fprintf(out, "=========     thread (%u,%u,%u) has ended\n", tid[0], tid[1], tid[2]);
	finding_close((struct thread *)t);
}

/* A mask of all lanes is what a program writes that means all there are. */
void check_warp(struct worker *w, struct thread *lanes, uint32_t members)
{
	const struct thread *t = &lanes[__builtin_ctz(members)];
	uint32_t there = warp_lanes(w, t->warp), exist = there < WARP ? (1u << there) - 1 : ~(uint32_t)0;
	uint32_t ended = t->mask & ~members & exist;

	EACH_LANE(k, members)
		w->checker->acts[lanes[k].index]++;
	order_join_lanes(w->checker, t->warp, members);
	if (wanted(w) && t->mask != ~(uint32_t)0 && ended)
		report_mask(w, t, ended);
}

void check_own_mask(struct thread *t, const struct insn *i)
{
	FILE *out = wanted(t->worker) ? finding_open(t, i, FINDING_MASK) : NULL;

	if (!out)
		return;
	fprintf(out, "========= sync: a lane is not in its own member mask 0x%08x\n", t->mask);
	finding_place(out, t->worker, t->index, "synchronises its warp", i);
	finding_close(t);
}

/* ---- barriers */

void check_number(struct thread *t, const struct insn *i, uint32_t number)
{
	FILE *out = wanted(t->worker) ? finding_open(t, i, FINDING_COUNT) : NULL;

	if (!out)
		return;
	fprintf(out, "========= sync: barrier %u of %d\n", number, BARRIERS);
	finding_place(out, t->worker, t->index, "comes to it", i);
	finding_close(t);
}

static void report_count(struct thread *t, const struct insn *i, uint32_t count, const struct insn *other, uint32_t before)
{
	FILE *out = finding_open(t, i, other ? FINDING_COUNTS : FINDING_COUNT);
	char text[64];

	if (!out)
		return;
	snprintf(text, sizeof text, "expects %u threads", count ? count : t->worker->n_threads);
	if (other) {
		fprintf(out, "========= sync: threads come to one barrier with different counts\n");
		finding_place(out, t->worker, t->index, text, i);
		fprintf(out, "=========     the first who came expected %u, at PTX line %u\n", before ? before : t->worker->n_threads,
			other->line);
	} else {
		fprintf(out, "========= sync: the count of a barrier is no multiple of the warp's %d lanes\n", WARP);
		finding_place(out, t->worker, t->index, text, i);
	}
	finding_close(t);
}

static void check_count(struct thread *t, const struct insn *i, uint32_t barrier)
{
	struct checker *c = t->worker->checker;
	uint32_t count = i->b ? (u32)t->r[i->b] : 0;

	if (!c->first[barrier]) {
		c->first[barrier] = i;
		c->counts[barrier] = count;
	}
	if (i->b && (!count || count % WARP))
		report_count(t, i, count, NULL, 0);
	else if (c->counts[barrier] != count)
		report_count(t, i, count, c->first[barrier], c->counts[barrier]);
}

/* What the lanes of the warp have done so far, when the first of them comes. */
static void remember_acts(struct worker *w, const struct thread *t, uint32_t barrier)
{
	uint32_t first = t->index - t->lane, n = warp_lanes(w, t->warp);

	for (uint32_t k = 0; k < n; k++)
		if (w->threads[first + k].state == THREAD_BARRIER && w->threads[first + k].barrier == barrier)
			return;
	memcpy(&w->checker->acts_then[first], &w->checker->acts[first], n * sizeof *w->checker->acts);
}

void check_arrive(struct thread *t, const struct insn *i, uint32_t barrier, bool waits)
{
	struct checker *c = t->worker->checker;

	c->acts[t->index]++;
	if (wanted(t->worker)) {
		check_count(t, i, barrier);
		if (waits)
			remember_acts(t->worker, t, barrier);
	}
	if (!i->b || !(c->checks & PTX_CHECK_RACE))
		return;
	if (!c->arrived[barrier])
		c->arrived[barrier] = order_view(c);
	order_arrive(c, c->arrived[barrier], t->index);
}

static bool waits_at(const struct thread *t, uint32_t barrier)
{
	return t->state == THREAD_BARRIER && t->barrier == barrier;
}

static void report_divergence(struct worker *w, struct thread *here, const struct thread *other)
{
	FILE *out = finding_open(here, here->pc, FINDING_DIVERGENCE);

	if (!out)
		return;
	fprintf(out, "========= sync: lanes of a warp come to a barrier that others %s\n",
		other->state == THREAD_EXITED ? "do not come to" : "come to elsewhere, or not at all");
	finding_place(out, w, here->index, "waits at it", here->pc);
	if (other->state == THREAD_EXITED)
		fprintf(out, "=========     thread (%u,%u,%u) went on to its end without it\n", other->tid[0], other->tid[1], other->tid[2]);
	else
		finding_place(out, w, other->index, "stands elsewhere", other->pc);
	finding_close(here);
}

/* Not .aligned: its lanes may come from different places. `size` has it. */
static bool parts_from(const struct worker *w, const struct thread *here, const struct thread *t, uint32_t barrier)
{
	const struct checker *c = w->checker;

	if (waits_at(t, barrier))
		return here->pc->size && t->pc != here->pc;
	if (t->state == THREAD_EXITED)
		return c->acts[t->index] != c->acts_then[t->index];
	return here->pc->size;
}

static void check_lanes(struct worker *w, uint32_t warp, uint32_t barrier)
{
	struct thread *lanes = &w->threads[warp * WARP], *here = NULL;
	uint32_t n = warp_lanes(w, warp);

	for (uint32_t k = 0; k < n && !here; k++)
		if (waits_at(&lanes[k], barrier))
			here = &lanes[k];
	for (uint32_t k = 0; k < n && here; k++)
		if (parts_from(w, here, &lanes[k], barrier)) {
			report_divergence(w, here, &lanes[k]);
			return;
		}
}

/* The barrier opens: those who wait at it still do. */
void check_open(struct worker *w, uint32_t barrier, uint32_t waiting)
{
	struct checker *c = w->checker;

	for (uint32_t warp = 0; warp * WARP < w->n_threads && wanted(w); warp++)
		check_lanes(w, warp, barrier);
	c->first[barrier] = NULL;
	c->counts[barrier] = 0;
	if (waiting == w->alive) {
		order_all(c);
		return;
	}
	for (uint32_t k = 0; k < w->n_threads; k++)
		if (waits_at(&w->threads[k], barrier))
			order_take(c, c->arrived[barrier], k);
	if (c->arrived[barrier])
		memset(c->arrived[barrier], 0, c->n_threads * sizeof *c->clock);
}

/* ---- no thread can go on */

enum { PLACES = 4 };

static bool is_listed(const struct insn *const *places, uint32_t n, const struct insn *pc)
{
	for (uint32_t k = 0; k < n; k++)
		if (places[k] == pc)
			return true;
	return false;
}

void check_stuck(struct worker *w)
{
	const struct insn *places[PLACES];
	FILE *out = NULL;
	uint32_t n = 0;

	for (uint32_t k = 0; k < w->n_threads && n < PLACES && wanted(w); k++) {
		struct thread *t = &w->threads[k];

		if (t->state == THREAD_EXITED || is_listed(places, n, t->pc))
			continue;
		if (!n) {
			out = finding_open(t, t->pc, FINDING_STUCK);
			if (!out)
				return;
			fprintf(out, "========= sync: no thread of the block can go on\n");
		}
		places[n++] = t->pc;
		finding_place(out, w, k, t->state == THREAD_BARRIER ? "waits at a barrier" :
				     t->state == THREAD_CLUSTER ? "waits for its cluster" : "waits for lanes of its warp", t->pc);
	}
	if (out)
		finding_close(&w->threads[0]);
}
