/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of a warp: the addresses of all lanes are checked at once, as those of one are (memory.c). */
#ifndef PTX_SIMD_MEMORY_H
#define PTX_SIMD_MEMORY_H

#include "ops.h"

enum pattern {
	PATTERN_NONE,  /* a lane's access is not to be had this way: each lane for itself, which finds the fault if there is one */
	PATTERN_SAME,  /* all lanes at one address */
	PATTERN_ROW,   /* one element behind the other, from lane 0 on */
	PATTERN_ANY,
};

/* Where the lanes' accesses begin. Lanes that take no part have the place of one that does. */
struct access {
	uint8_t *memory;
	uint64_t at[WARP];
};

/* The memory that an access of `lane` at `addr` lies in, with its place there and its end. False: simd_each will say why. */
static inline bool simd_window(struct fragment *g, const struct insn *i, uint32_t lane, enum space space, uint64_t addr,
			       uint32_t size, bool write, struct range *window)
{
	struct worker *w = g->worker;
	const struct range *known;

	if (space == SPACE_GENERIC) {
		window->base = addr >> WINDOW_SHIFT << WINDOW_SHIFT;
		space = addr >> WINDOW_SHIFT == WINDOW_SHARED ? SPACE_SHARED :
			addr >> WINDOW_SHIFT == WINDOW_PARAM  ? SPACE_PARAM :
			addr >> WINDOW_SHIFT == WINDOW_GLOBAL ? SPACE_GLOBAL :
								SPACE_NONE;
	} else {
		window->base = 0;
	}
	switch (space) {
	case SPACE_SHARED:
		window->at = w->shared;
		window->length = w->shared_bytes;
		return true;
	case SPACE_PARAM:
		window->at = (uint8_t *)w->grid->launch->params;
		window->length = w->grid->kernel->param_bytes;
		return !write;
	case SPACE_GLOBAL:
	case SPACE_CONST:
		known = &w->cache[range_place(i)];
		if (addr - known->base >= known->length || (write && !known->write))
			if (!reach_global(&g->lanes[lane], i, addr, size, write))
				return false;
		*window = *known;
		return true;
	default:
		return false;
	}
}

SIMD_INLINE enum pattern simd_reach(struct fragment *g, const struct insn *i, uint32_t size, bool write, struct access *out)
{
	uint32_t first = (uint32_t)__builtin_ctz(g->mask);
	const uint64_t *cells = g->frame + i->a;
	uint64_t wrap = i->flags & FLAG_ADDRESS32 ? 0xffffffff : ~(uint64_t)0, offset = (uint64_t)i->offset;
	uint64_t start = (cells[first] + offset) & wrap, last, low = 0, beyond = 0, apart = 0, jumps = 0;
	struct range window;

	if (!simd_window(g, i, first, (enum space)i->space, start, size, write, &window) || window.length < size)
		return PATTERN_NONE;
	last = window.length - size;
	start -= window.base;
	if (~g->mask)
		for (uint32_t k = 0; k < WARP; k++)
			out->at[k] = g->mask >> k & 1 ? ((cells[k] + offset) & wrap) - window.base : start;
	else
		for (uint32_t k = 0; k < WARP; k++)
			out->at[k] = ((cells[k] + offset) & wrap) - window.base;
	for (uint32_t k = 0; k < WARP; k++) {
		uint64_t at = out->at[k];

		low |= at;
		beyond |= at | (last - at); /* the highest bit: below 0, or above the last place */
		apart |= at ^ start;
		jumps |= at ^ (start + k * size);
	}
	if ((low | window.base) & (size - 1) || beyond >> 63)
		return PATTERN_NONE;
	out->memory = window.at;
	return !apart ? PATTERN_SAME : !jumps && !~g->mask ? PATTERN_ROW : PATTERN_ANY;
}

/* Cells of the lanes from memory; each element is read in one piece, as other blocks may write it at the same time. */
#define WIDE_LOAD(T)                                                                                                 \
	SIMD_INLINE const struct insn *wide_load_##T(struct fragment *g, const struct insn *i)                       \
	{                                                                                                            \
		struct access a;                                                                                     \
		enum pattern pattern = simd_reach(g, i, sizeof(T), false, &a);                                       \
		uint64_t *to = g->frame + (g->whole ? i->d : 0);                                                     \
                                                                                                                     \
		if (pattern == PATTERN_NONE)                                                                         \
			return simd_each(g, i);                                                                      \
		if (pattern == PATTERN_SAME) {                                                                       \
			u64 value = (u64)__atomic_load_n((T *)(void *)(a.memory + a.at[0]), __ATOMIC_RELAXED);       \
                                                                                                                     \
			ALL_LANES(k)                                                                                 \
				to[k] = value;                                                                       \
		} else if (pattern == PATTERN_ROW) {                                                                 \
			const T *from = (const T *)(void *)(a.memory + a.at[0]);                                     \
                                                                                                                     \
			ALL_LANES(k)                                                                                 \
				to[k] = (u64)from[k];                                                                \
		} else {                                                                                             \
			for (uint32_t k = 0; k < WARP; k++)                                                          \
				to[k] = (u64)__atomic_load_n((T *)(void *)(a.memory + a.at[k]), __ATOMIC_RELAXED);   \
		}                                                                                                    \
		if (!g->whole)                                                                                       \
			simd_blend(g->frame + i->d, to, g->mask);                                                    \
		return i + 1;                                                                                        \
	}
WIDE_LOAD(u8) WIDE_LOAD(u16) WIDE_LOAD(u32) WIDE_LOAD(u64) WIDE_LOAD(s8) WIDE_LOAD(s16) WIDE_LOAD(s32)

/* Of several lanes that write to one place the highest one is last. */
#define WIDE_STORE(T)                                                                                                \
	SIMD_INLINE const struct insn *wide_store_##T(struct fragment *g, const struct insn *i)                      \
	{                                                                                                            \
		struct access a;                                                                                     \
		enum pattern pattern = simd_reach(g, i, sizeof(T), true, &a);                                        \
		const uint64_t *from = g->frame + i->d;                                                              \
                                                                                                                     \
		if (pattern == PATTERN_NONE)                                                                         \
			return simd_each(g, i);                                                                      \
		if (pattern == PATTERN_ROW) {                                                                        \
			T *to = (T *)(void *)(a.memory + a.at[0]);                                                   \
                                                                                                                     \
			ALL_LANES(k)                                                                                 \
				to[k] = (T)from[k];                                                                  \
		} else {                                                                                             \
			EACH_LANE(k, g->mask)                                                                        \
				__atomic_store_n((T *)(void *)(a.memory + a.at[k]), (T)from[k], __ATOMIC_RELAXED);   \
		}                                                                                                    \
		return i + 1;                                                                                        \
	}
WIDE_STORE(u8) WIDE_STORE(u16) WIDE_STORE(u32) WIDE_STORE(u64)

#endif
