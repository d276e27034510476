/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding modes, flushing of subnormal numbers and saturation, as the flags of an instruction ask for. */
#ifndef PTX_ROUNDING_H
#define PTX_ROUNDING_H

#include "ops.h"

#include <fenv.h>

static inline enum rounding flag_rounding(uint32_t flags)
{
	return (enum rounding)(flags >> FLAG_ROUND_SHIFT & 3);
}

static inline void round_begin(uint32_t flags)
{
	static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };

	if (flag_rounding(flags) != ROUND_RN)
		fesetround(modes[flag_rounding(flags)]);
}

static inline void round_end(uint32_t flags)
{
	if (flag_rounding(flags) != ROUND_RN)
		fesetround(FE_TONEAREST);
}

static inline float flush_f32(float f)
{
	return fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

static inline float in_f32(uint64_t cell, uint32_t flags)
{
	float f = get_f32(cell);

	return flags & FLAG_FTZ ? flush_f32(f) : f;
}

static inline uint64_t out_f32(float f, uint32_t flags)
{
	if (flags & FLAG_FTZ)
		f = flush_f32(f);
	if (flags & FLAG_SAT)
		f = f > 0 ? f < 1 ? f : 1 : 0; /* NaN becomes +0 */
	return put_f32_result(f);
}

float half_to_float(uint16_t half);
/* Rounds to a format of `fraction` and `exponent` bits; `finite` keeps overflow at the largest number. */
uint32_t encode_float(long double v, int fraction, int exponent, enum rounding rounding, bool finite);
static inline uint32_t encode_half(long double v, enum rounding rounding)
{
	return encode_float(v, 10, 5, rounding, false);
}
static inline uint32_t encode_bfloat(long double v, enum rounding rounding)
{
	return encode_float(v, 7, 8, rounding, false);
}

#endif
