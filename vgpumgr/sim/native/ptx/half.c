/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 and bf16, single and packed in pairs. Operands are exact in long double, whose precision is more than twice
 * theirs, so that computing there and rounding once gives the correctly rounded result.
 */
#include "rounding.h"
#include "worst.h"

#include <float.h>

float half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;

	if (exponent == 31)
		return get_f32(sign | 0x7f800000 | fraction << 13);
	if (!exponent)
		return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
	return get_f32(sign | (exponent + 112) << 23 | fraction << 13);
}

static bool round_up(long double rest, bool odd, bool negative, enum rounding rounding)
{
	switch (rounding) {
	case ROUND_RN:
		return rest > 0.5L || (rest == 0.5L && odd);
	case ROUND_RM:
		return negative && rest > 0;
	case ROUND_RP:
		return !negative && rest > 0;
	default:
		return false;
	}
}

uint32_t encode_float(long double v, int fraction, int exponent, enum rounding rounding, bool finite)
{
	uint32_t infinity = ((1u << exponent) - 1) << fraction, bits, n;
	bool negative = signbit(v);
	uint32_t sign = negative ? 1u << (fraction + exponent) : 0;
	int least = 2 - (1 << (exponent - 1)), e;
	long double scaled;

	if (isnan(v))
		return (1u << (fraction + exponent)) - 1;
	if (isinf(v))
		return sign | (infinity - finite);
	if (v == 0)
		return sign;
	frexpl(v, &e);
	e = e - 1 < least ? least : e - 1;
	if (e > 1 << exponent)
		e = 1 << exponent; /* overflows in any case */
	scaled = ldexpl(fabsl(v), fraction - e);
	if (scaled >= 0x1p31L)
		scaled = 0x1p31L;
	n = (uint32_t)scaled;
	n += round_up(scaled - (long double)n, n & 1, negative, rounding);
	bits = n + ((uint32_t)(e - least) << fraction);
	if (bits < infinity && n < 0x40000000)
		return sign | bits;
	if (finite || rounding == ROUND_RZ || (rounding == ROUND_RM && !negative) || (rounding == ROUND_RP && negative))
		return sign | (infinity - 1);
	return sign | infinity;
}

enum half_operation { H_ADD, H_SUB, H_MUL, H_FMA, H_MIN, H_MAX, H_ABS, H_NEG };
enum { H_BF16 = 0x1000, H_PAIR = 0x2000, H_WORST = 0x4000 };

static float widen(u16 v, uint32_t flags)
{
	return flags & H_BF16 ? get_f32((u64)v << 16) : half_to_float(v);
}

static u16 flush_half(u16 v, uint32_t flags)
{
	uint32_t exponent = flags & H_BF16 ? 0x7f80 : 0x7c00;

	return flags & FLAG_FTZ && !(v & exponent) ? v & 0x8000 : v;
}

static u16 half_pick(u16 a, u16 b, bool max, uint32_t flags)
{
	float x = widen(a, flags), y = widen(b, flags);

	if (x != x || y != y)
		return flags & FLAG_NAN || (x != x && y != y) ? 0x7fff : x != x ? b : a;
	if (x == y)
		return (a >> 15 != 0) == max ? b : a;
	return (x < y) == max ? b : a;
}

/*
 * p + z, rounded to odd: a rest below long double's last place must not vanish, for p may lie half-way between two
 * numbers of the narrow format.
 */
static long double add_to_odd(long double p, long double z)
{
	volatile long double sum = p + z, back = sum - p, rest = (p - (sum - back)) + (z - back);
	int e;

	if (!isfinite(sum) || rest == 0 || fmodl(ldexpl(frexpl(sum, &e), LDBL_MANT_DIG), 2) != 0)
		return sum;
	return nextafterl(sum, rest > 0 ? HUGE_VALL : -HUGE_VALL);
}

static u16 half_arithmetic(enum half_operation op, u16 a, u16 b, u16 c, uint32_t flags)
{
	long double x = (long double)widen(a, flags), y = (long double)widen(b, flags), z = (long double)widen(c, flags);
	long double v = op == H_ADD ? x + y : op == H_SUB ? x - y : op == H_MUL ? x * y : add_to_odd(x * y, z);
	u16 out;

	if (flags & FLAG_SAT)
		v = v > 0 ? v < 1 ? v : 1 : 0;
	out = (u16)(flags & H_BF16 ? encode_bfloat(v, flag_rounding(flags & 0x3ff)) :
				     encode_half(v, flag_rounding(flags & 0x3ff)));
	if (flags & FLAG_RELU && v < 0)
		out = 0;
	return out;
}

static u16 half_one(enum half_operation op, u16 a, u16 b, u16 c, uint32_t flags)
{
	a = flush_half(a, flags);
	b = flush_half(b, flags);
	c = flush_half(c, flags);
	switch (op) {
	case H_MIN:
	case H_MAX:
		return half_pick(a, b, op == H_MAX, flags);
	case H_ABS:
		return a & 0x7fff;
	case H_NEG:
		return a ^ 0x8000;
	default:
		return flush_half(half_arithmetic(op, a, b, c, flags), flags);
	}
}

OP(half_run, enum half_operation op = (enum half_operation)i->imm;
   u32 out = half_one(op, (u16)r[i->a], (u16)r[i->b], (u16)r[i->c], i->flags);
   if (i->flags & H_PAIR) out |= (u32)half_one(op, (u16)(r[i->a] >> 16), (u16)(r[i->b] >> 16), (u16)(r[i->c] >> 16), i->flags) << 16;
   r[i->d] = out)

bool decode_half(struct body *b, struct statement *s, enum type type, uint32_t op)
{
	bool pair = type == T_F16X2 || type == T_BF16X2, brain = type == T_BF16 || type == T_BF16X2;
	uint16_t flags = (uint16_t)((pair ? H_PAIR : 0) | (brain ? H_BF16 : 0));
	uint32_t sources = op == H_FMA ? 3 : op >= H_ABS ? 1 : 2;
	struct insn *i;

	if (op == H_FMA && !text_is(s->opcode, "fma"))
		return false;
	if (op <= H_FMA)
		take(s, "rn"); /* the only rounding there is */
	if (take(s, "ftz")) {
		if (brain)
			return false;
		flags |= FLAG_FTZ;
	}
	if (op <= H_FMA && !brain && take(s, "sat"))
		flags |= FLAG_SAT;
	if (op == H_FMA && take(s, "relu"))
		flags |= FLAG_RELU;
	if ((op == H_MIN || op == H_MAX) && take(s, "NaN"))
		flags |= FLAG_NAN;
	if (!emit_simple(b, s, half_run, pair ? T_B32 : T_B16, sources))
		return false;
	i = &b->function->code[b->function->n_code - 1];
	i->flags = flags;
	i->imm = op;
	return true;
}

static u16 worst_half(bool exponential, bool brain, double x)
{
	double v = exponential ? exp2(x) : tanh(x), least = brain ? (double)FLT_MIN : 0x1p-14;
	double bound = exponential ? exp2(brain ? -7 : -9.9) * v : brain ? 0x1p-8 : exp2(-10.987), off;
	bool up = worst_is_up((uint32_t)put_f32((float)x)), bounded = x != 0 && isfinite(x) && (!exponential || v >= least);
	enum rounding back = up ? ROUND_RM : ROUND_RP; /* from the limit */
	uint32_t bits;

	off = bounded ? up ? v + bound : v - bound : v;
	bits = brain ? encode_bfloat((long double)off, back) : encode_half((long double)off, back);
	off = brain ? (double)get_f32((uint64_t)bits << 16) : (double)half_to_float((uint16_t)bits);
	if (bounded && fabs(off - v) <= bound)
		return (uint16_t)bits;
	return (uint16_t)(brain ? encode_bfloat((long double)v, ROUND_RN) : encode_half((long double)v, ROUND_RN));
}

/* ex2.approx and tanh.approx: computed in double precision and rounded once. ex2 of bf16 flushes subnormal numbers. */
static u16 half_function(bool exponential, u16 a, uint32_t flags)
{
	double x = (double)widen(flush_half(a, flags), flags), v = exponential ? exp2(x) : tanh(x);

	if (flags & H_WORST)
		return flush_half(worst_half(exponential, flags & H_BF16, x), flags);
	return flush_half((u16)(flags & H_BF16 ? encode_bfloat((long double)v, ROUND_RN) : encode_half((long double)v, ROUND_RN)), flags);
}

OP(half_approx, u32 out = half_function(i->imm, (u16)r[i->a], i->flags);
   if (i->flags & H_PAIR) out |= (u32)half_function(i->imm, (u16)(r[i->a] >> 16), i->flags) << 16;
   r[i->d] = out)

bool decode_half_approx(struct body *b, struct statement *s, enum type type)
{
	bool pair = type == T_F16X2 || type == T_BF16X2, brain = type == T_BF16 || type == T_BF16X2;
	bool exponential = text_is(s->opcode, "ex2");
	struct insn *i;

	if (exponential && brain != take(s, "ftz"))
		return false;
	if (!emit_simple(b, s, half_approx, pair ? T_B32 : T_B16, 1))
		return false;
	i = &b->function->code[b->function->n_code - 1];
	i->flags = (uint16_t)((pair ? H_PAIR : 0) | (brain ? H_BF16 : 0) | (exponential && brain ? FLAG_FTZ : 0) |
			      (worst_wanted() ? H_WORST : 0));
	i->imm = exponential;
	return true;
}
