/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy-check SEED RUNS: the arbiter's policy in virtual time, with made-up tenants on a made-up GPU. Each run has 2 to 10
 * tenants with kernels of 10 us to 500 ms, of which some always have work, some pause, and some report what they like. In a
 * third of the runs tenants leave and come again, and weights change; then no share of the whole run is promised. A
 * broken promise is printed with the run's seed, and ends the program with 1. Printed at the end: what was reached.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy.h"

enum { TENANTS = 10 };

struct tenant {
	int number;
	bool always, hostile, overdue; /* overdue: it was, once */
	uint64_t shortest, longest;  /* kernels, ns */
	uint64_t gap;                /* between two kernels, of one that waits for each */
	uint64_t left;               /* of the work on the GPU */
	uint64_t arrival;            /* UINT64_MAX: none is due */
	uint64_t used_before, longest_turn, waits_from, longest_wait, turns;
	uint64_t closed_from;        /* it has waited since then, whatever has changed */
};

static struct tenant tenant[TENANTS];
static unsigned tenants;
static struct arbiter arbiter;
static uint64_t now, idle_from, begun, seed, state;
static bool changing;            /* tenants come and go, and their weights change */
static bool mixed;               /* they are of several classes */
static uint64_t decisions, longest_idle, turns, virtual_s, changes;

static uint64_t draw(uint64_t least, uint64_t most)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return least + (most > least ? (state >> 16) % (most - least + 1) : 0);
}

static _Noreturn void fail(const char *what, uint64_t got, uint64_t bound)
{
	printf("run %" PRIu64 ", %s, after %" PRIu64 " us: %s: %" PRIu64 " us, at most %" PRIu64 " us\n", seed,
	       arbiter.kind == ARB_BURST ? "burst" : "fixed", (now - begun) / 1000, what, got / 1000, bound / 1000);
	exit(1);
}

static struct arb_channel *of(const struct tenant *t)
{
	return &arbiter.channel[t->number];
}

/* ---- tenants and the GPU */

static void submit(struct tenant *t)
{
	t->left = draw(t->shortest, t->longest);
	t->arrival = UINT64_MAX;
	arb_report(&arbiter, t->number, false, true, now);
}

static void complete(struct tenant *t)
{
	bool open = of(t)->turn != ARB_CLOSED;

	if (!t->gap && open)
		submit(t);
	else if (!t->gap)
		arb_report(&arbiter, t->number, true, false, now);
	else
		t->arrival = now + t->gap, arb_report(&arbiter, t->number, false, false, now);
}

static void arrive(struct tenant *t)
{
	if (of(t)->turn != ARB_CLOSED)
		submit(t);
	else
		t->arrival = UINT64_MAX, arb_report(&arbiter, t->number, true, false, now);
}

static unsigned count_running(void)
{
	unsigned running = 0;

	for (unsigned i = 0; i < tenants; i++)
		running += tenant[i].left > 0;
	return running;
}

static uint64_t find_event(uint64_t until)
{
	unsigned running = count_running();

	for (unsigned i = 0; i < tenants; i++) {
		if (tenant[i].left && now + tenant[i].left * running < until)
			until = now + tenant[i].left * running;
		if (tenant[i].arrival < until)
			until = tenant[i].arrival;
	}
	return until > now ? until : now + 1;
}

static void pass(uint64_t until)
{
	unsigned running = count_running();
	uint64_t each = running ? (until - now) / running : 0;

	if (!each && running)
		each = 1;
	now = until;
	for (unsigned i = 0; i < tenants; i++) {
		struct tenant *t = &tenant[i];

		if (t->left && t->left <= each) {
			t->left = 0;
			complete(t);
		} else if (t->left) {
			t->left -= each;
		}
		if (t->arrival <= now)
			arrive(t);
	}
}

static void be_hostile(struct tenant *t)
{
	arb_report(&arbiter, t->number, draw(0, 1), draw(0, 1), now);
	t->arrival = UINT64_MAX;
	t->left = 0;
}

/* Those that wait and may begin do. */
static void begin_work(void)
{
	for (unsigned i = 0; i < tenants; i++)
		if (!tenant[i].hostile && of(&tenant[i])->wants && of(&tenant[i])->turn != ARB_CLOSED && !tenant[i].left)
			submit(&tenant[i]);
}

/* ---- promises */

static bool anyone_waits(void)
{
	for (unsigned i = 0; i < tenants; i++)
		if (of(&tenant[i])->wants && of(&tenant[i])->turn == ARB_CLOSED)
			return true;
	return false;
}

/* Whether the GPU stands idle from now on while one waits. */
static bool stands_idle(void)
{
	if (count_running() || !anyone_waits())
		return false;
	for (unsigned i = 0; i < tenants; i++)
		if (tenant[i].hostile && (of(&tenant[i])->busy || arbiter.holder == tenant[i].number))
			return false; /* as far as it says; it pays for that */
	return true;
}

/* With burst that lasts no longer than the grace of a holder that has just had work. */
static void check_idle(bool idle)
{
	if (!idle)
		idle_from = now;
	if (now - idle_from > longest_idle && arbiter.kind == ARB_BURST)
		longest_idle = now - idle_from;
	if (arbiter.kind == ARB_BURST && now - idle_from > ARB_GRACE_MOST_NS + 1000)
		fail("the GPU is idle while one waits", now - idle_from, ARB_GRACE_MOST_NS);
}

static void check_one_turn(void)
{
	unsigned open = 0;

	for (int i = 0; i < ARB_CHANNELS; i++)
		open += arbiter.channel[i].used && arbiter.channel[i].turn != ARB_CLOSED;
	if (open > 1)
		fail("two channels have a turn", open, 1);
}

/* What others may have before it is its turn again: as much as puts them level, and a turn each. */
static uint64_t wait_bound(const struct tenant *t)
{
	uint64_t sum = (ARB_GRACE_MOST_NS + ARB_PATIENCE_NS + ARB_CREDIT_NS + (mixed ? ARB_STARVE_NS : 0)) * tenants;

	for (unsigned i = 0; i < tenants; i++)
		if (&tenant[i] != t)
			sum += 2 * tenant[i].longest_turn + ARB_TURN_NS + tenant[i].longest +
			       t->longest_turn * of(&tenant[i])->weight / of(t)->weight;
	return 2 * sum;
}

static void follow_turns(void)
{
	for (unsigned i = 0; i < tenants; i++) {
		struct tenant *t = &tenant[i];
		const struct arb_channel *c = of(t);
		bool waits = c->wants && c->turn == ARB_CLOSED;

		t->overdue = t->overdue || c->overdue;
		if (c->used_ns - t->used_before > t->longest_turn)
			t->longest_turn = c->used_ns - t->used_before;
		if (arbiter.holder != t->number && !c->overdue)
			t->used_before = c->used_ns;
		if (!waits)
			t->waits_from = t->closed_from = now;
		if (now - t->waits_from > t->longest_wait)
			t->longest_wait = now - t->waits_from;
		if (arbiter.kind == ARB_BURST && !t->hostile && now - t->waits_from > wait_bound(t))
			fail("a tenant starves", now - t->waits_from, wait_bound(t));
	}
}

/* A hard cap without enough for a turn begins none. */
static bool may_begin(const struct arb_channel *c)
{
	uint64_t least = ARB_WINDOW_NS / ARB_WHOLE * c->weight;

	return arbiter.kind == ARB_BURST || c->budget_ns >= (int64_t)(least < ARB_TURN_NS ? least : ARB_TURN_NS);
}

/* A turn that has just begun: a class comes before a lower one within its part of the time, unless that has waited for long. */
static void check_class(const struct tenant *t)
{
	const struct arb_channel *c = of(t);

	if (now - t->closed_from >= ARB_STARVE_NS)
		return;
	for (unsigned i = 0; i < tenants; i++) {
		const struct arb_channel *o = of(&tenant[i]);
		bool waits = o != c && o->wants && o->turn == ARB_CLOSED && may_begin(o);

		if (waits && o->prior && o->class > c->class)
			fail("a lower class comes first", now - tenant[i].waits_from, 0);
		if (waits && o->prior && o->class > ARB_LOW && o->class < c->class && !c->prior)
			fail("a class comes first beyond its part of the time", now - tenant[i].waits_from, 0);
	}
}

static void check_classes(void)
{
	for (unsigned i = 0; i < tenants; i++) {
		if (of(&tenant[i])->turns > tenant[i].turns && mixed)
			check_class(&tenant[i]);
		tenant[i].turns = of(&tenant[i])->turns;
	}
}

/* Of two that always have work and drain in time none is ahead of the other, by weight, by more than its own longest turn. */
static void check_burst(void)
{
	for (unsigned i = 0; i < tenants; i++)
		for (unsigned j = 0; j < tenants; j++) {
			const struct tenant *x = &tenant[i], *y = &tenant[j];
			uint64_t ahead = of(x)->used_ns * ARB_WHOLE / of(x)->weight, behind = of(y)->used_ns * ARB_WHOLE / of(y)->weight;
			uint64_t bound = x->longest_turn * ARB_WHOLE / of(x)->weight + 100000;

			if (!mixed && x->always && y->always && !y->overdue && ahead > behind && ahead - behind > bound)
				fail("a tenant is ahead of its weight", ahead - behind, bound);
		}
}

/* Classes take nothing of anyone's part, where the parts leave the GPU some time of its own. */
static void check_parts(uint64_t run)
{
	uint64_t slack = 2 * ARB_STARVE_NS, weights = 0;

	for (unsigned i = 0; i < tenants; i++) {
		slack += 2 * tenant[i].longest_turn + 2 * ARB_WINDOW_NS;
		weights += of(&tenant[i])->weight;
	}
	for (unsigned i = 0; weights <= ARB_WHOLE / 10 * 9 && i < tenants; i++) {
		const struct tenant *t = &tenant[i];
		uint64_t share = run / ARB_WHOLE * of(t)->weight, used = of(t)->used_ns;

		if (t->always && !t->overdue && used + slack < share)
			fail("a tenant has less than its part", share - used, slack);
	}
}

/* A cap holds, and all of it can be used where the caps leave the GPU some time of its own. */
static void check_fixed(uint64_t run)
{
	uint64_t others = 0, weights = 0;

	for (unsigned i = 0; i < tenants; i++) {
		others += tenant[i].longest_turn;
		weights += of(&tenant[i])->weight;
	}
	for (unsigned i = 0; i < tenants; i++) {
		const struct tenant *t = &tenant[i];
		uint64_t share = run / ARB_WHOLE * of(t)->weight, used = of(t)->used_ns;
		uint64_t most = share + t->longest_turn + ARB_OWED_NS, slack = 2 * others + 2 * ARB_WINDOW_NS;

		if (!t->hostile && used > most)
			fail("a cap is exceeded", used, most);
		if (t->always && !t->overdue && weights <= ARB_WHOLE / 10 * 9 && used + slack < share)
			fail("a tenant has less than its cap", share - used, slack);
	}
}

/* ---- a run */

static uint32_t draw_weight(void)
{
	return (uint32_t)draw(ARB_LEAST, 2 * ARB_WHOLE / tenants);
}

static enum arb_class draw_class(void)
{
	return mixed ? (enum arb_class)draw(ARB_LOW, ARB_HIGH) : ARB_NORMAL;
}

static void draw_tenants(bool mean)
{
	static const uint64_t lengths[] = { 10000, 100000, 1000000, 5000000, 50000000, 500000000 };

	tenants = (unsigned)draw(2, TENANTS);
	for (unsigned i = 0; i < tenants; i++) {
		struct tenant *t = &tenant[i];
		unsigned shape = (unsigned)draw(0, 9), length = (unsigned)draw(0, mean ? 5 : 4);

		*t = (struct tenant){ .arrival = UINT64_MAX };
		t->longest = lengths[length];
		t->shortest = draw(0, 1) ? t->longest : lengths[draw(0, length)];
		t->hostile = mean && shape == 0;
		t->gap = shape > 0 && shape < 4 ? draw(1000, 50000000) : 0;
		t->always = !t->hostile && !t->gap;
		t->number = arb_join(&arbiter, draw_weight(), draw_class(), now);
		t->waits_from = t->closed_from = now;
		t->used_before = 0;
		arb_report(&arbiter, t->number, true, false, now);
	}
}

/* One leaves in whatever it is doing and comes again at once, or has another weight; all bounds begin anew. */
static void change(struct tenant *t)
{
	changes++;
	if (draw(0, 1)) {
		arb_weigh(&arbiter, t->number, draw(0, 9) ? draw_weight() : (uint32_t)draw(0, 10 * ARB_WHOLE), draw_class(), now);
		if (of(t)->weight < ARB_LEAST || of(t)->weight > ARB_WHOLE)
			fail("a weight is no part of the whole", of(t)->weight, ARB_WHOLE);
	} else {
		arb_leave(&arbiter, t->number, now);
		if (arbiter.holder == t->number)
			fail("one that has left has its turn", 1, 0);
		t->number = arb_join(&arbiter, draw_weight(), draw_class(), now);
		t->turns = 0;
		t->closed_from = now;
		t->left = 0;
		t->arrival = UINT64_MAX;
		t->used_before = 0;
		arb_report(&arbiter, t->number, true, false, now);
	}
	for (unsigned i = 0; i < tenants; i++)
		tenant[i].waits_from = now;
}

static void run(enum arb_kind kind, uint64_t length)
{
	bool mean = draw(0, 1);

	changing = !draw(0, 2);
	mixed = seed % 4 > 1;
	begun = now = idle_from = draw(1, 1000000000);
	arb_init(&arbiter, kind, now);
	draw_tenants(mean);
	while (now < begun + length) {
		uint64_t until = arb_decide(&arbiter, now);
		bool idle;

		decisions++;
		if (until <= now)
			fail("a decision holds for no time", now - until, 0);
		check_one_turn();
		check_classes();
		begin_work();
		follow_turns();
		idle = stands_idle();
		pass(find_event(until < begun + length ? until : begun + length));
		check_idle(idle);
		for (unsigned i = 0; i < tenants; i++)
			if (tenant[i].hostile && !draw(0, 20))
				be_hostile(&tenant[i]);
		if (changing && !draw(0, 2000))
			change(&tenant[draw(0, tenants - 1)]);
	}
	follow_turns();
	if (!changing && kind == ARB_BURST)
		check_burst(), check_parts(length);
	else if (!changing)
		check_fixed(length);
	for (unsigned i = 0; i < tenants; i++)
		turns += of(&tenant[i])->turns;
	virtual_s += length / 1000000000;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;

	for (seed = first; seed < first + runs; seed++) {
		state = seed * 0x9e3779b97f4a7c15u;
		run(seed % 2 ? ARB_BURST : ARB_FIXED, 20000000000u);
	}
	printf("%" PRIu64 " runs, %" PRIu64 " decisions, %" PRIu64 " turns, %" PRIu64 " s of virtual time, %" PRIu64 " changes; longest idle while one waits %"
	       PRIu64 " us\n", runs, decisions, turns, virtual_s, changes, longest_idle / 1000);
	return 0;
}
