/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sin, cos, lg2, ex2, rcp, sqrt, rsqrt and tanh. The approximate single-precision forms are computed in double
 * precision and rounded once, which keeps them well inside NVIDIA's documented error bounds.
 */
#include "rounding.h"
#include "worst.h"

#define SINGLE(name, expr)                                                                                           \
	OP(name##_f32, double a = (double)in_f32(r[i->a], i->flags); r[i->d] = out_f32((float)(expr), i->flags))
SINGLE(sin, sin(a))
SINGLE(cos, cos(a))
SINGLE(lg2, log2(a))
SINGLE(ex2, exp2(a))
SINGLE(tanh, tanh(a))
SINGLE(rsqrt, a == 0 ? copysign(HUGE_VAL, a) : 1 / sqrt(a))

#define ROUNDED(name, expr32, expr64)                                                                                \
	OP(name##_f32, volatile float a = in_f32(r[i->a], i->flags); round_begin(i->flags);                          \
	   volatile float out = expr32; round_end(i->flags); r[i->d] = out_f32(out, i->flags))                       \
	OP(name##_f64, volatile double a = get_f64(r[i->a]); round_begin(i->flags); volatile double out = expr64;    \
	   round_end(i->flags); r[i->d] = put_f64(out))
ROUNDED(rcp, 1.0f / a, 1.0 / a)
ROUNDED(sqrt, sqrtf(a), sqrt(a))
OP(rsqrt_f64, double a = get_f64(r[i->a]); r[i->d] = put_f64(a == 0 ? copysign(HUGE_VAL, a) : 1 / sqrt(a)))

/* .approx.ftz.f64: 20 bits of fraction, the rest zero */
static double flush_f64(double f)
{
	return fpclassify(f) == FP_SUBNORMAL ? copysign(0, f) : f;
}
static u64 upper_half(double f)
{
	f = flush_f64(f);
	return f == f ? put_f64(f) & 0xffffffff00000000 : 0x7fffffff00000000;
}
OP(rcp_f64_coarse, r[i->d] = upper_half(1 / flush_f64(get_f64(r[i->a]))))
OP(rsqrt_f64_coarse, double a = flush_f64(get_f64(r[i->a])); r[i->d] = upper_half(a == 0 ? copysign(HUGE_VAL, a) : 1 / sqrt(a)))

OP(worst_f32, r[i->d] = out_f32(worst_single((enum approx)i->imm, in_f32(r[i->a], i->flags)), i->flags))

static handler *const single[] = { sin_f32, cos_f32, lg2_f32, ex2_f32, rcp_f32, sqrt_f32, rsqrt_f32, tanh_f32 };

static handler *choose(struct statement *s, enum type type, bool approx)
{
	bool exact = s->variant == RCP || s->variant == SQRT;

	if (type == T_F32)
		return approx || exact ? single[s->variant] : NULL;
	if (type != T_F64)
		return NULL;
	if (!approx)
		return s->variant == RCP ? rcp_f64 : s->variant == SQRT ? sqrt_f64 : NULL;
	if (s->variant == RCP)
		return take(s, "ftz") ? rcp_f64_coarse : NULL;
	if (s->variant == RSQRT)
		return take(s, "ftz") ? rsqrt_f64_coarse : rsqrt_f64;
	return NULL;
}

DECODER(approx)
{
	enum type type = take_type(s);
	bool approx = take(s, "approx");
	handler *run = choose(s, type, approx);
	struct insn *i;
	uint16_t flags = 0;

	if (approx && (s->variant == EX2 || s->variant == TANH) && type >= T_F16 && type <= T_BF16X2)
		return decode_half_approx(b, s, type);
	if (!approx)
		flags = (uint16_t)(take_rounding(s) << FLAG_ROUND_SHIFT);
	if (type == T_F32 && take(s, "ftz"))
		flags |= FLAG_FTZ;
	if (approx && type == T_F32 && worst_wanted())
		run = worst_f32;
	if (!emit_simple(b, s, run, type, 1))
		return false;
	i = &b->function->code[b->function->n_code - 1];
	i->flags = flags;
	i->imm = s->variant;
	return true;
}
