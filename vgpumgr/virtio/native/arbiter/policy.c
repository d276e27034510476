/* SPDX-License-Identifier: Apache-2.0 */
#include "policy.h"

#include <string.h>

static struct arb_channel *at(struct arbiter *a, int number)
{
	return number < 0 || number >= ARB_CHANNELS || !a->channel[number].used ? NULL : &a->channel[number];
}

static uint32_t clamp(uint32_t weight)
{
	return weight < ARB_LEAST ? ARB_LEAST : weight > ARB_WHOLE ? ARB_WHOLE : weight;
}

static uint64_t least(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

/* What a hard cap is of some time. */
static uint64_t part(const struct arb_channel *c, uint64_t ns)
{
	return ns / ARB_WHOLE * c->weight + ns % ARB_WHOLE * c->weight / ARB_WHOLE;
}

/* The time of which that is its part: by its weight. */
static uint64_t whole(const struct arb_channel *c, uint64_t ns)
{
	return ns / c->weight * ARB_WHOLE + ns % c->weight * ARB_WHOLE / c->weight;
}

/* A hard cap that has less than this does not begin a turn: turns would be too short for their cost. */
static int64_t least_budget(const struct arb_channel *c)
{
	uint64_t window = part(c, ARB_WINDOW_NS);

	return (int64_t)(window < ARB_TURN_NS ? window : ARB_TURN_NS);
}

static bool may_begin(const struct arbiter *a, const struct arb_channel *c)
{
	return c->used && c->wants && (a->kind == ARB_BURST || c->budget_ns >= least_budget(c));
}

/* Within one class weights decide alone; so they do where the class does not count. */
static int rank(const struct arbiter *a, int i)
{
	const struct arb_channel *c = &a->channel[i];

	if (!a->mixed)
		return 0;
	if (c->waits_from && a->now - c->waits_from >= ARB_STARVE_NS)
		return ARB_HIGH + 1;
	return c->prior ? (int)c->class : ARB_LOW;
}

static bool is_before(const struct arbiter *a, int i, int j)
{
	int x = rank(a, i), y = rank(a, j);

	return x != y ? x > y : a->channel[i].virtual_ns < a->channel[j].virtual_ns;
}

/* Of those that wait and may have a turn: of the highest class the one that has had least by its weight. */
static int find_next(const struct arbiter *a)
{
	int best = ARB_NONE;

	for (int i = 0; i < ARB_CHANNELS; i++) {
		const struct arb_channel *c = &a->channel[i];

		if (i != a->holder && may_begin(a, c) && (best < 0 || is_before(a, i, best)))
			best = i;
	}
	return best;
}

/* ---- time passes */

static bool is_active(const struct arbiter *a, int i)
{
	const struct arb_channel *c = &a->channel[i];

	return c->used && (c->wants || c->busy || i == a->holder);
}

/* The one that is furthest behind, of those with work. */
static void follow(struct arbiter *a)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < ARB_CHANNELS; i++)
		if (is_active(a, i) && a->channel[i].virtual_ns < least)
			least = a->channel[i].virtual_ns;
	if (least != UINT64_MAX && least > a->virtual_now)
		a->virtual_now = least;
}

static bool is_charged(const struct arbiter *a, int i, bool others_wait)
{
	const struct arb_channel *c = &a->channel[i];

	if (!c->used)
		return false;
	return c->busy ? i == a->holder || c->overdue : i == a->holder && others_wait;
}

static void charge(struct arb_channel *c, uint64_t ns)
{
	uint64_t rest = ns % c->weight * ARB_WHOLE + c->virtual_rest;

	c->used_ns += ns;
	c->virtual_ns += ns / c->weight * ARB_WHOLE + rest / c->weight;
	c->virtual_rest = rest % c->weight;
}

/* Short times are many: their rests are kept, so that the sum is exact. */
static uint64_t grow(struct arb_channel *c, uint64_t ns)
{
	uint64_t rest = ns % ARB_WHOLE * c->weight + c->budget_rest;

	c->budget_rest = rest % ARB_WHOLE;
	return ns / ARB_WHOLE * c->weight + rest / ARB_WHOLE;
}

/* A cap grows with time and falls by what is used. What it could not use because another channel had the GPU is kept for longer. */
static void fill(struct arbiter *a, int i, uint64_t ns, uint64_t charged)
{
	struct arb_channel *c = &a->channel[i];
	bool kept_back = a->kind == ARB_FIXED && c->wants && i != a->holder && c->budget_ns >= least_budget(c);
	int64_t most = (int64_t)part(c, kept_back ? ARB_OWED_NS : ARB_WINDOW_NS);
	int64_t more = (int64_t)grow(c, ns) - (int64_t)charged;

	if (c->budget_ns + more <= most || more <= 0)
		c->budget_ns += more;
	else if (c->budget_ns < most)
		c->budget_ns = most;
	else if (!c->wants && !c->busy) /* what was kept is lost with time, as all that is not used */
		c->budget_ns = c->budget_ns - most > more ? c->budget_ns - more : most;
	if (a->kind == ARB_BURST && c->budget_ns < -(int64_t)ARB_PATIENCE_NS) /* of idle time, which is no debt for long */
		c->budget_ns = -(int64_t)ARB_PATIENCE_NS;
	c->prior = c->budget_ns > 0 && (c->prior || c->budget_ns >= least_budget(c));
}

static void advance(struct arbiter *a, uint64_t now)
{
	uint64_t ns = now > a->now ? now - a->now : 0;
	bool others_wait = find_next(a) >= 0;
	unsigned running = 0;

	a->now += ns;
	if (!ns)
		return;
	for (int i = 0; i < ARB_CHANNELS; i++)
		running += is_charged(a, i, others_wait);
	for (int i = 0; i < ARB_CHANNELS; i++) {
		struct arb_channel *c = &a->channel[i];
		uint64_t charged;

		if (!c->used)
			continue;
		if (c->wants && c->turn == ARB_CLOSED)
			c->throttled_ns += ns;
		charged = is_charged(a, i, others_wait) ? ns / running : 0; /* those with work on the GPU divide its time */
		fill(a, i, ns, charged);
		charge(c, charged);
	}
	follow(a);
}

/* ---- channels */

void arb_init(struct arbiter *a, enum arb_kind kind, uint64_t now)
{
	memset(a, 0, sizeof(*a));
	a->kind = kind;
	a->now = now;
	a->holder = ARB_NONE;
}

int arb_join(struct arbiter *a, uint32_t weight, enum arb_class class, uint64_t now)
{
	advance(a, now);
	for (int i = 0; i < ARB_CHANNELS; i++) {
		struct arb_channel *c = &a->channel[i];

		if (c->used)
			continue;
		*c = (struct arb_channel){ .used = true, .weight = clamp(weight), .virtual_ns = a->virtual_now,
					  .pause_ns = ARB_PAUSE_NS, .class = class, .prior = true };
		c->budget_ns = least_budget(c);
		return i;
	}
	return ARB_NONE;
}

static void end_turn(struct arbiter *a)
{
	if (a->holder >= 0)
		a->channel[a->holder].turn = ARB_CLOSED;
	a->holder = ARB_NONE;
	a->draining = false;
}

void arb_leave(struct arbiter *a, int number, uint64_t now)
{
	advance(a, now);
	if (!at(a, number))
		return;
	if (a->holder == number)
		end_turn(a);
	a->channel[number].used = false;
}

void arb_weigh(struct arbiter *a, int number, uint32_t weight, enum arb_class class, uint64_t now)
{
	struct arb_channel *c = at(a, number);

	advance(a, now);
	if (!c)
		return;
	c->weight = clamp(weight);
	c->class = class;
	c->virtual_rest = 0;
	if (c->budget_ns > (int64_t)part(c, ARB_OWED_NS))
		c->budget_ns = (int64_t)part(c, ARB_OWED_NS);
}

/* A pause between two kernels costs nothing; what was not used in a longer one is not kept. */
static void come_back(const struct arbiter *a, struct arb_channel *c)
{
	uint64_t credit = whole(c, ARB_CREDIT_NS);
	uint64_t least = a->virtual_now > credit ? a->virtual_now - credit : 0;

	if (c->virtual_ns < least)
		c->virtual_ns = least;
}

/* A fading mean of its pauses; one longer than the arbiter waits for counts as that long. */
static void follow_pauses(const struct arbiter *a, struct arb_channel *c)
{
	if (!c->wants && !c->busy) {
		c->idle_at = c->idle_at ? c->idle_at : a->now;
	} else if (c->idle_at) {
		c->pause_ns = (3 * c->pause_ns + least(a->now - c->idle_at, 2 * ARB_GRACE_MOST_NS)) / 4;
		c->idle_at = 0;
	}
}

static void follow_holder(struct arbiter *a, bool busy)
{
	if (busy && a->idle_from) {
		a->idle_from = 0;
		a->busy_from = a->now;
	} else if (!busy && !a->idle_from) {
		a->idle_from = a->now;
		a->stretch = a->now - a->busy_from + 1;
	}
}

void arb_report(struct arbiter *a, int number, bool wants, bool busy, uint64_t now)
{
	struct arb_channel *c = at(a, number);

	advance(a, now);
	if (!c)
		return;
	if (!is_active(a, number) && (wants || busy))
		come_back(a, c);
	c->wants = wants;
	c->busy = busy;
	follow_pauses(a, c);
	if (!busy)
		c->overdue = false;
	if (number == a->holder)
		follow_holder(a, busy);
}

/* ---- decisions */

static void close_turn(struct arbiter *a)
{
	a->draining = true;
	a->drained_from = a->now;
	a->channel[a->holder].turn = ARB_CLOSED;
}

static void grant(struct arbiter *a, int number)
{
	struct arb_channel *c = &a->channel[number];

	a->holder = number;
	a->draining = false;
	a->granted = a->now;
	a->idle_from = c->busy ? 0 : a->now;
	a->busy_from = a->now;
	a->stretch = 0;
	c->overdue = false;
	c->waits_from = 0;
	c->turns++;
}

/* The holder drains: whether it has, or is waited for no longer. */
static void wait_for_drain(struct arbiter *a)
{
	struct arb_channel *c = &a->channel[a->holder];

	if (c->busy && a->now - a->drained_from < ARB_PATIENCE_NS)
		return;
	c->overdue = c->busy;
	end_turn(a);
}

/* When a waiting channel may come before others: it has waited for too long, or its class counts. */
static uint64_t next_rise(const struct arbiter *a)
{
	uint64_t until = UINT64_MAX;

	for (int i = 0; a->mixed && i < ARB_CHANNELS; i++) {
		const struct arb_channel *c = &a->channel[i];

		if (!c->used || !c->waits_from)
			continue;
		if (a->now < c->waits_from + ARB_STARVE_NS)
			until = least(until, c->waits_from + ARB_STARVE_NS);
		if (c->class != ARB_LOW && c->budget_ns < least_budget(c))
			until = least(until, a->now + whole(c, (uint64_t)(least_budget(c) - c->budget_ns)) + ARB_WHOLE / ARB_LEAST);
	}
	return until;
}

/* A lower class waits until the holder has used its part of the time. */
static uint64_t end_of_class(const struct arbiter *a)
{
	const struct arb_channel *c = &a->channel[a->holder];

	if (c->weight == ARB_WHOLE)
		return UINT64_MAX;
	return a->now + (uint64_t)c->budget_ns * ARB_WHOLE / (ARB_WHOLE - c->weight) + 1;
}

/* When a turn that began ends: when the next one is behind by its weight, and the turn has lasted. */
static uint64_t end_of_turn(const struct arbiter *a, int next)
{
	const struct arb_channel *c = &a->channel[a->holder], *n = &a->channel[next];
	uint64_t last = a->granted + ARB_TURN_NS, ahead;
	int higher = rank(a, a->holder) - rank(a, next);

	if (higher < 0 || (!higher && c->virtual_ns >= n->virtual_ns))
		return last;
	if (higher)
		return end_of_class(a) > last ? end_of_class(a) : last;
	ahead = a->now + part(c, n->virtual_ns - c->virtual_ns) + 1;
	return ahead > last ? ahead : last;
}

/* Until when a holder without work keeps its turn; it pays for that time. */
static uint64_t end_of_grace(const struct arbiter *a, int next)
{
	const struct arb_channel *c = &a->channel[a->holder];
	uint64_t wanted = c->pause_ns * 3 / 2 + ARB_PAUSE_NS, most = a->stretch / ARB_GRACE_PART;

	if (!a->idle_from)
		return UINT64_MAX;
	if (!a->stretch) /* its sessions are being woken */
		return a->idle_from + ARB_GRACE_NS;
	most = most > ARB_GRACE_NS ? least(most, ARB_GRACE_MOST_NS) : ARB_GRACE_NS;
	if (c->virtual_ns >= a->channel[next].virtual_ns)
		most = ARB_GRACE_AHEAD_NS;
	return a->idle_from + (wanted <= most ? wanted : 0);
}

static void judge_holder(struct arbiter *a)
{
	const struct arb_channel *c = &a->channel[a->holder];
	int next = find_next(a);

	if (a->kind == ARB_FIXED && c->budget_ns <= 0)
		close_turn(a);
	else if (next >= 0 && (a->now >= end_of_grace(a, next) || a->now >= end_of_turn(a, next)))
		close_turn(a);
}

/* A cap that is being used grows as well. */
static uint64_t end_of_budget(const struct arbiter *a)
{
	const struct arb_channel *c = &a->channel[a->holder];

	if (a->kind == ARB_BURST || c->weight == ARB_WHOLE || c->budget_ns <= 0)
		return UINT64_MAX;
	return a->now + (uint64_t)c->budget_ns * ARB_WHOLE / (ARB_WHOLE - c->weight) + 1;
}

static uint64_t next_with_holder(const struct arbiter *a)
{
	uint64_t until = UINT64_MAX;
	int next = find_next(a);

	if (a->draining)
		return a->drained_from + ARB_PATIENCE_NS;
	if (a->channel[a->holder].busy || next >= 0)
		until = end_of_budget(a);
	if (next >= 0)
		until = least(least(until, next_rise(a)), least(end_of_turn(a, next), end_of_grace(a, next)));
	return until;
}

/* The first cap that waits and has enough for a turn. */
static uint64_t next_budget(const struct arbiter *a)
{
	uint64_t until = UINT64_MAX;

	for (int i = 0; i < ARB_CHANNELS; i++) {
		const struct arb_channel *c = &a->channel[i];

		if (!c->used || !c->wants || i == a->holder || c->budget_ns >= least_budget(c))
			continue;
		until = least(until, a->now + whole(c, (uint64_t)(least_budget(c) - c->budget_ns)) + ARB_WHOLE / ARB_LEAST);
	}
	return until;
}

static void follow_waits(struct arbiter *a)
{
	int class = ARB_NONE;

	a->mixed = false;
	for (int i = 0; i < ARB_CHANNELS; i++) {
		struct arb_channel *c = &a->channel[i];

		if (!c->used || !c->wants || c->turn != ARB_CLOSED)
			c->waits_from = 0;
		else if (!c->waits_from)
			c->waits_from = a->now;
		if (!is_active(a, i))
			continue;
		a->mixed = a->mixed || (class != ARB_NONE && class != (int)c->class);
		class = (int)c->class;
	}
}

uint64_t arb_decide(struct arbiter *a, uint64_t now)
{
	uint64_t until;
	int next;

	advance(a, now);
	follow_waits(a);
	if (a->holder >= 0 && !a->draining)
		judge_holder(a);
	if (a->holder >= 0 && a->draining)
		wait_for_drain(a);
	next = find_next(a);
	if (a->holder < 0 && next >= 0) {
		grant(a, next);
		next = find_next(a);
	}
	if (a->holder >= 0 && !a->draining)
		a->channel[a->holder].turn = next >= 0 ? ARB_CONTENDED : ARB_OPEN;
	until = a->holder >= 0 ? next_with_holder(a) : UINT64_MAX;
	return a->kind == ARB_FIXED ? least(until, next_budget(a)) : until;
}
