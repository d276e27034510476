/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One instruction for the lanes of a warp at once.
 *
 * A fragment is a set of lanes that stand at the same instruction, in frames at the same place. A wide form of a handler
 * does for all of them what the handler does for one; it is a loop over the lanes that the compiler makes vector instructions
 * of. An instruction without one runs its handler for each lane (simd_each): the results are the same. OP (ops.h) makes both
 * from one text.
 */
#ifndef PTX_SIMD_H
#define PTX_SIMD_H

#include "state.h"

struct fragment {
	struct worker *worker;
	struct warp *warp;
	struct thread *lanes; /* all of the warp */
	uint64_t *frame;      /* cells of the warp: frame[slot + lane] */
	uint32_t mask;
	bool whole;           /* no other lane of the warp lives: what is written for those beyond the mask means nothing */
	uint32_t fuel, used;  /* of each lane */
	uint32_t depth, next; /* calls; the join that they go to, or 0 */
	const struct function *function;
	const struct insn *join;  /* where that is, if in this frame */
	const struct insn *limit; /* others stand there */
};

/* Runs the handler lane by lane. For every instruction that has no wide form. */
wide_handler simd_each;
/* Lanes `first` go on at `a`, the others at `b`. Those who go on now are the fragment afterwards; where they do is the answer. */
const struct insn *simd_part(struct fragment *g, const struct insn *i, uint32_t first, const struct insn *a, const struct insn *b);
/* All lanes stop before `at`. Always NULL, so that a wide form can return it. */
const struct insn *simd_stop(struct fragment *g, const struct insn *at);

/* The lanes have come to their join: they wait there, unless they are the last. */
void simd_arrive(struct fragment *g, uint32_t lanes);
/* Those who have arrived go on. */
void simd_let_go(struct warp *w, struct join *j);
static inline bool simd_complete(const struct warp *w, const struct join *j)
{
	return j->used && j->arrived == (j->members & ~w->exited);
}

/* At load: the wide form of each instruction, and where lanes meet again. */
void simd_prepare(struct arena *arena, struct function *f);
/* How many of its instructions run lane by lane. */
uint32_t simd_lacks(const struct function *f);

/*
 * Every wide form is compiled twice: for any x86-64, and for processors with AVX2 and FMA. Which one runs is chosen when a
 * module is loaded. The forms find their way there by a section of the library, so that a new handler needs no list.
 */
struct wide_form {
	handler *run;
	wide_handler *plain, *vector;
};

#ifdef __x86_64__
#define SIMD_VECTOR __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt")))
#else
#define SIMD_VECTOR
#endif
#define SIMD_INLINE static inline __attribute__((always_inline))

/* Registers always-inline functions like a wide_handler as the wide form of handler `name`. */
#define WIDE_FORMS(name, plain_body, vector_body)                                                                    \
	static const struct insn *plain_##name(struct fragment *g, const struct insn *i)                             \
	{                                                                                                            \
		return plain_body(g, i);                                                                             \
	}                                                                                                            \
	SIMD_VECTOR static const struct insn *vector_##name(struct fragment *g, const struct insn *i)                \
	{                                                                                                            \
		return vector_body(g, i);                                                                            \
	}                                                                                                            \
	static const struct wide_form form_##name = { name, plain_##name, vector_##name };                           \
	static const struct wide_form *const listed_##name __attribute__((used, section("ptx_wide"))) = &form_##name;
#define WIDE_FORM(name, body) WIDE_FORMS(name, body, body)

#define EACH_LANE(k, members) for (uint32_t k##_left = (members), k; k##_left && (k = (uint32_t)__builtin_ctz(k##_left), 1); k##_left &= k##_left - 1)
/* No iteration reads what another one writes: lanes have cells of their own. */
#define ALL_LANES(k) _Pragma("GCC ivdep") for (uint32_t k = 0; k < WARP; k++)

#define WIDE_BODY(...)                                                                                               \
	{                                                                                                            \
		__attribute__((unused)) uint64_t *r = frame + lane;                                                  \
		__attribute__((unused)) struct thread *t = lanes + lane;                                             \
		__VA_ARGS__;                                                                                         \
	}
#define WIDE_LOCALS                                                                                                  \
	struct insn copy = *from; /* no store to a cell changes it */                                                \
	const struct insn *i = &copy;                                                                                \
	uint64_t *frame = g->frame;                                                                                  \
	__attribute__((unused)) struct thread *lanes = g->lanes;

/* The wide form of a handler whose text touches cells of its own lane only. */
#define WIDE_LANES(name, ...)                                                                                        \
	SIMD_INLINE const struct insn *lanes_##name(struct fragment *g, const struct insn *from)                     \
	{                                                                                                            \
		WIDE_LOCALS                                                                                          \
		(void)i;                                                                                             \
		if (g->whole)                                                                                        \
			ALL_LANES(lane) WIDE_BODY(__VA_ARGS__)                                                       \
		else                                                                                                 \
			EACH_LANE(lane, g->mask) WIDE_BODY(__VA_ARGS__)                                              \
		return from + 1;                                                                                     \
	}                                                                                                            \
	WIDE_FORM(name, lanes_##name)

/* Fewer lanes than these are quicker one by one. */
enum { SIMD_FEW = 6 };

/* Cells of the lanes in `mask` become those of `values`. */
SIMD_INLINE void simd_blend(uint64_t *cells, const uint64_t *values, uint32_t mask)
{
	ALL_LANES(k)
	{
		uint64_t keep = (uint64_t)(mask >> k & 1) - 1;

		cells[k] = (cells[k] & keep) | (values[k] & ~keep);
	}
}

/*
 * The same where the text writes r[i->d] and nothing else: some of the lanes are computed with the others, into the cells of
 * slot 0, which is never an operand.
 */
#define WIDE_PURE(name, ...)                                                                                         \
	SIMD_INLINE const struct insn *pure_##name(struct fragment *g, const struct insn *from)                      \
	{                                                                                                            \
		WIDE_LOCALS                                                                                          \
		if (!g->whole && __builtin_popcount(g->mask) < SIMD_FEW) {                                           \
			EACH_LANE(lane, g->mask) WIDE_BODY(__VA_ARGS__)                                              \
			return from + 1;                                                                             \
		}                                                                                                    \
		if (!g->whole)                                                                                       \
			copy.d = 0;                                                                                  \
		ALL_LANES(lane) WIDE_BODY(__VA_ARGS__)                                                               \
		if (!g->whole)                                                                                       \
			simd_blend(frame + from->d, frame, g->mask);                                                 \
		return from + 1;                                                                                     \
	}                                                                                                            \
	WIDE_FORM(name, pure_##name)

#endif
