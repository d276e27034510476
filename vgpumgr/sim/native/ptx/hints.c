/* SPDX-License-Identifier: Apache-2.0 */
/* What asks for speed or order and changes no result here: every access is seen by all at once, and there are no caches. */
#include "async.h"

void take_hints(struct statement *s)
{
	static const char *const hints[] = {
		"weak", "volatile", "relaxed", "acquire", "release", "mmio", "cta", "cluster", "gpu", "sys", "ca", "cg", "cs", "lu",
		"cv", "nc", "wb", "wt", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
		"L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B", NULL,
	};

	while (take_one(s, hints) >= 0)
		;
}

void take_policy(struct body *b, struct statement *s)
{
	if (!take(s, "L2::cache_hint"))
		return;
	operands(b, s, 2, MAX_OPERANDS);
	src(b, s, s->n - 1, T_B64);
	s->n--;
}

/* prefetch, prefetchu, discard.L2: hints without a result (discard may leave the data as it is) */
DECODER(prefetch)
{
	static const char *const levels[] = { "L1", "L2", "L2::evict_last", "L2::evict_normal", "128", NULL };

	(void)b;
	if (take_space(s) == SPACE_SHARED)
		return false;
	while (take_one(s, levels) >= 0)
		;
	return true;
}

/* applypriority{.global}.L2::evict_normal [a], 128 */
DECODER(priority)
{
	struct insn unused = { .run = NULL };

	take(s, "global");
	if (!take(s, "L2::evict_normal"))
		return false;
	operands(b, s, 2, 2);
	address(b, s, 0, &unused);
	return true;
}

OP(run_policy, r[i->d] = i->imm)

/* A policy is 64 bits that only hints read. */
static bool emit_policy(struct body *b, struct statement *s, u64 value)
{
	struct insn *i;

	if (!all_taken(s))
		return false;
	i = emit(b, s, run_policy);
	i->d = dst(b, s, 0, T_B64);
	i->imm = value;
	return true;
}

DECODER(createpolicy)
{
	static const char *const primary[] = { "L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged", NULL };
	bool fractional = take(s, "fractional"), range = !fractional && take(s, "range");
	struct insn unused = { .run = NULL };
	int first;

	if (!take(s, "b64"))
		return false;
	if (!fractional && !range) {
		if (!take(s, "cvt") || !take(s, "L2"))
			return false;
		operands(b, s, 2, 2);
		src(b, s, 1, T_B64);
		return emit_policy(b, s, 1);
	}
	take(s, "global");
	first = take_one(s, primary);
	if (first < 0)
		return false;
	take_one(s, primary);
	operands(b, s, range ? 4 : 1, range ? 4 : 2);
	if (range) {
		address(b, s, 1, &unused);
		src(b, s, 2, T_U32);
		src(b, s, 3, T_U32);
	} else if (s->n == 2) {
		src(b, s, 1, T_F32);
	}
	return emit_policy(b, s, (u64)first + 2);
}

/* fence, membar, and fence.proxy: also what is read through textures and asynchronous copies is read from memory. */
DECODER(fence)
{
	static const char *const kinds[] = { "sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "gl", NULL };
	static const char *const proxies[] = { "alias", "async", NULL };
	static const char *const spaces[] = { "global", "shared::cta", "shared::cluster", NULL };

	(void)b;
	if (take(s, "mbarrier_init"))
		return s->n == 0 && take(s, "release") && take(s, "cluster");
	if (take(s, "proxy")) {
		if (take_one(s, proxies) < 0)
			return false;
		take_one(s, spaces);
		return s->n == 0;
	}
	while (take_one(s, kinds) >= 0)
		;
	return s->n == 0;
}

/* griddepcontrol: a grid starts when those before it have ended. */
DECODER(griddepcontrol)
{
	(void)b;
	return (take(s, "launch_dependents") || take(s, "wait")) && s->n == 0;
}

/* setmaxnreg.{inc,dec}.sync.aligned.u32 n: every thread has the registers that it names. */
DECODER(setmaxnreg)
{
	(void)b;
	return (take(s, "inc") || take(s, "dec")) && take(s, "sync") && take(s, "aligned") && take(s, "u32") && s->n == 1 &&
	       s->operands[0].kind == O_INT;
}

/* pmevent n: an event for a profiler. */
DECODER(pmevent)
{
	take(s, "mask");
	operands(b, s, 1, 1);
	return s->operands[0].kind == O_INT;
}
