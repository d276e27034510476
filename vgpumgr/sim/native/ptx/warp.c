/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warp-wide instructions. A thread stops at one until every living lane of its member mask stands at one with the same
 * qualifiers; then the operation runs once for all of them.
 */
#include "checks.h"

static HANDLER(run_activemask)
{
	t->pc = i;
	t->state = THREAD_CONVERGE;
	return NULL;
}

#define EACH(k, members) for (uint32_t k = 0; k < WARP; k++) if ((members) >> k & 1)

enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };

static uint32_t shuffle_source(uint32_t mode, uint32_t lane, uint32_t by, uint32_t control, bool *inside)
{
	uint32_t segment = control >> 8 & 31, clamp = control & 31;
	uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
	int from;

	by &= 31;
	switch (mode) {
	case SHFL_UP:
		from = (int)lane - (int)by;
		*inside = from >= (int)most;
		break;
	case SHFL_DOWN:
		from = (int)(lane + by);
		*inside = from <= (int)most;
		break;
	case SHFL_BFLY:
		from = (int)(lane ^ by);
		*inside = from <= (int)most;
		break;
	default:
		from = (int)(least | (by & ~segment));
		*inside = from <= (int)most;
	}
	return *inside ? (uint32_t)from : lane;
}

static void shuffle(struct thread *lanes, uint32_t members)
{
	uint32_t values[WARP] = { 0 };

	EACH(k, members)
		values[k] = (u32)lanes[k].r[lanes[k].pc->a];
	EACH(k, members) {
		const struct insn *i = lanes[k].pc;
		uint64_t *r = lanes[k].r;
		bool inside;
		uint32_t from = shuffle_source(i->flags, k, (u32)r[i->b], (u32)r[i->c], &inside);

		/* the value of a lane that does not take part is undefined: keep one's own */
		r[i->d] = values[members >> from & 1 ? from : k];
		r[i[1].d] = inside;
	}
}

enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

static void vote(struct thread *lanes, uint32_t members)
{
	uint32_t ballot = 0;

	EACH(k, members)
		ballot |= (uint32_t)(lanes[k].r[lanes[k].pc->a] & 1) << k;
	EACH(k, members) {
		const struct insn *i = lanes[k].pc;
		const uint32_t results[] = { ballot == members, ballot != 0, ballot == members || !ballot, ballot };

		lanes[k].r[i->d] = results[i->flags];
	}
}

enum { MATCH_ANY32, MATCH_ANY64, MATCH_ALL32, MATCH_ALL64 };

static void match(struct thread *lanes, uint32_t members)
{
	uint64_t values[WARP] = { 0 };

	EACH(k, members) {
		const struct insn *i = lanes[k].pc;

		values[k] = i->flags & 1 ? lanes[k].r[i->a] : (u32)lanes[k].r[i->a];
	}
	EACH(k, members) {
		const struct insn *i = lanes[k].pc;
		uint32_t same = 0;

		EACH(n, members)
			same |= (uint32_t)(values[n] == values[k]) << n;
		if (i->flags >= MATCH_ALL32) {
			lanes[k].r[i[1].d] = same == members;
			same = same == members ? members : 0;
		}
		lanes[k].r[i->d] = same;
	}
}

enum { REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR, REDUX_SIGNED = 8 };

static uint32_t reduce(uint32_t op, uint32_t x, uint32_t y)
{
	switch (op) {
	case REDUX_ADD:
		return x + y;
	case REDUX_MIN:
		return x < y ? x : y;
	case REDUX_MAX:
		return x > y ? x : y;
	case REDUX_MIN | REDUX_SIGNED:
		return (s32)x < (s32)y ? x : y;
	case REDUX_MAX | REDUX_SIGNED:
		return (s32)x > (s32)y ? x : y;
	case REDUX_AND:
		return x & y;
	case REDUX_OR:
		return x | y;
	default:
		return x ^ y;
	}
}

static void redux(struct thread *lanes, uint32_t members)
{
	uint32_t result = 0, first = (uint32_t)__builtin_ctz(members);

	EACH(k, members) {
		uint32_t v = (u32)lanes[k].r[lanes[k].pc->a];

		result = k == first ? v : reduce(lanes[k].pc->flags, result, v);
	}
	EACH(k, members)
		lanes[k].r[lanes[k].pc->d] = result;
}

static void elect(struct thread *lanes, uint32_t members)
{
	uint32_t first = (uint32_t)__builtin_ctz(members);

	EACH(k, members) {
		const struct insn *i = lanes[k].pc;

		lanes[k].r[i->d] = first;
		lanes[k].r[i[1].d] = k == first;
	}
}

static void warp_barrier(struct thread *lanes, uint32_t members)
{
	(void)lanes;
	(void)members;
}

/* The lanes that `t` waits for, if all of them are there; else 0. */
static uint32_t gathered(const struct thread *lanes, uint32_t n, const struct thread *t)
{
	uint32_t members = 0;

	for (uint32_t k = 0; k < n; k++) {
		const struct thread *o = &lanes[k];

		if (!(t->mask >> k & 1) || o->state == THREAD_EXITED)
			continue;
		if (o->state != THREAD_WARP || o->mask != t->mask || o->pc->ext != t->pc->ext || o->pc->flags != t->pc->flags)
			return 0;
		members |= 1u << k;
	}
	return members;
}

static void release(struct thread *lanes, uint32_t members, uint32_t length)
{
	EACH(k, members) {
		lanes[k].pc += length;
		lanes[k].state = THREAD_READY;
	}
}

/* Lanes that run in step come to an activemask together; no lane that stands behind it can come any more. */
static bool settle_converged(struct thread *lanes, uint32_t n)
{
	bool settled = false;

	for (uint32_t k = 0; k < n; k++) {
		const struct insn *pc = lanes[k].pc;
		uint32_t members = 0;

		if (lanes[k].state != THREAD_CONVERGE)
			continue;
		for (uint32_t o = k; o < n; o++)
			members |= (uint32_t)(lanes[o].state == THREAD_CONVERGE && lanes[o].pc == pc) << o;
		EACH(o, members)
			lanes[o].r[pc->d] = members;
		release(lanes, members, 1);
		settled = true;
	}
	return settled;
}

bool warp_step(struct worker *w, uint32_t warp)
{
	struct thread *lanes = &w->threads[warp * WARP];
	uint32_t n = warp_lanes(w, warp), members;
	bool settled = false;

	for (uint32_t k = 0; k < n; k++) {
		if (lanes[k].state != THREAD_WARP || !(members = gathered(lanes, n, &lanes[k])))
			continue;
		((warp_operation *)(uintptr_t)lanes[k].pc->imm)(lanes, members);
		if (w->checker)
			check_warp(w, lanes, members);
		release(lanes, members, 2);
		settled = true;
	}
	return settled || settle_converged(lanes, n);
}

DECODER(shfl)
{
	static const char *const modes[] = { "up", "down", "bfly", "idx", NULL };
	struct warp_form f = { .run = shuffle };
	int mode = take_one(s, modes);

	if (!take(s, "sync") || mode < 0 || take_type(s) != T_B32)
		return false;
	operands(b, s, 5, 5);
	f.flags = (uint16_t)mode;
	f.a = src(b, s, 1, T_B32);
	f.b = src(b, s, 2, T_B32);
	f.c = src(b, s, 3, T_B32);
	f.mask = src(b, s, 4, T_B32);
	f.d = dst(b, s, 0, T_B32);
	f.second = dst_pair(b, s, 0);
	return emit_warp(b, s, &f);
}

DECODER(vote)
{
	static const char *const modes[] = { "all", "any", "uni", "ballot", NULL };
	struct warp_form f = { .run = vote };
	int mode = take_one(s, modes);
	enum type type = take_type(s);

	if (!take(s, "sync") || mode < 0 || type != (mode == VOTE_BALLOT ? T_B32 : T_PRED))
		return false;
	operands(b, s, 3, 3);
	f.flags = (uint16_t)mode;
	f.a = src_predicate(b, s, 1);
	f.mask = src(b, s, 2, T_B32);
	f.d = dst(b, s, 0, type);
	f.second = b->sink;
	return emit_warp(b, s, &f);
}

DECODER(match)
{
	struct warp_form f = { .run = match };
	bool all = take(s, "all"), any = take(s, "any");
	enum type type = take_type(s);

	if (!take(s, "sync") || all == any || (type != T_B32 && type != T_B64))
		return false;
	operands(b, s, 3, 3);
	f.flags = (uint16_t)((all ? MATCH_ALL32 : MATCH_ANY32) + (type == T_B64));
	f.a = src(b, s, 1, type);
	f.mask = src(b, s, 2, T_B32);
	f.d = dst(b, s, 0, T_B32);
	f.second = dst_pair(b, s, 0);
	return emit_warp(b, s, &f);
}

DECODER(redux)
{
	static const char *const modes[] = { "add", "min", "max", "and", "or", "xor", NULL };
	struct warp_form f = { .run = redux };
	enum type type = take_type(s);
	int mode = type == T_F32 ? -1 : take_one(s, modes);
	bool bits = type == T_B32, number = type == T_U32 || type == T_S32;

	if (type == T_F32)
		return decode_redux_float(b, s);
	if (!take(s, "sync") || mode < 0 || !(mode >= REDUX_AND ? bits : number))
		return false;
	operands(b, s, 3, 3);
	f.flags = (uint16_t)(mode | (type == T_S32 && mode != REDUX_ADD ? REDUX_SIGNED : 0));
	f.a = src(b, s, 1, type);
	f.mask = src(b, s, 2, T_B32);
	f.d = dst(b, s, 0, type);
	f.second = b->sink;
	return emit_warp(b, s, &f);
}

DECODER(elect)
{
	struct warp_form f = { .run = elect };

	if (!take(s, "sync"))
		return false;
	operands(b, s, 2, 2);
	f.mask = src(b, s, 1, T_B32);
	f.d = dst(b, s, 0, T_B32);
	f.second = dst_pair(b, s, 0);
	return emit_warp(b, s, &f);
}

bool decode_warp_barrier(struct body *b, struct statement *s)
{
	struct warp_form f = { .run = warp_barrier };

	operands(b, s, 1, 1);
	f.mask = src(b, s, 0, T_B32);
	f.d = f.second = b->sink;
	return emit_warp(b, s, &f);
}

DECODER(activemask)
{
	struct insn *i;

	if (take_type(s) != T_B32)
		return false;
	operands(b, s, 1, 1);
	i = emit_visible(b, s, run_activemask);
	i->d = dst(b, s, 0, T_B32);
	return true;
}
