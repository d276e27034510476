/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wide forms of the usual floating-point instructions. Compiled without -frounding-math, with which a fused multiply-add is
 * not vectorised: none of these is for another rounding than to nearest.
 *
 * Cells are taken as pairs of numbers, of which the upper means nothing: so nothing is packed and unpacked.
 */
#include "simd_float.h"

SIMD_INLINE uint32_t result_bits(float f)
{
	union { float f; uint32_t bits; } v = { f };

	return (v.bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : v.bits;
}

#define SINGLES(name, expr)                                                                                          \
	SIMD_VECTOR const struct insn *simd_##name(struct fragment *g, const struct insn *i)                         \
	{                                                                                                            \
		const float *at_a = (const float *)(const void *)(g->frame + i->a);                                  \
		const float *at_b = (const float *)(const void *)(g->frame + i->b);                                  \
		__attribute__((unused)) const float *at_c = (const float *)(const void *)(g->frame + i->c);          \
		uint32_t *at_d = (uint32_t *)(void *)(g->frame + (g->whole ? i->d : 0));                             \
                                                                                                                     \
		_Pragma("GCC ivdep") for (uint32_t k = 0; k < 2 * WARP; k++)                                         \
			at_d[k] = result_bits(expr);                                                                 \
		if (!g->whole)                                                                                       \
			simd_blend(g->frame + i->d, g->frame, g->mask);                                              \
		return i + 1;                                                                                        \
	}
SINGLES(add_f32, at_a[k] + at_b[k])
SINGLES(sub_f32, at_a[k] - at_b[k])
SINGLES(mul_f32, at_a[k] * at_b[k])
SINGLES(div_f32, at_a[k] / at_b[k])
SINGLES(fma_f32, fmaf(at_a[k], at_b[k], at_c[k]))
