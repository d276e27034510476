/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single and double precision arithmetic, correctly rounded. The plain form (.rn, no .ftz, no .sat) of each instruction
 * has a handler of its own; the others share one that looks at the flags.
 */
#include "rounding.h"
#include "simd_float.h"
#include "worst.h"

/* Those with a form of simd_float.c. */
#define ONE(name, ...)                                                                                               \
	static HANDLER(name)                                                                                         \
	{                                                                                                            \
		__VA_ARGS__;                                                                                         \
		return i + 1;                                                                                        \
	}
#define SINGLES(name)                                                                                                \
	SIMD_INLINE const struct insn *lanes_##name(struct fragment *g, const struct insn *i)                        \
	{                                                                                                            \
		EACH_LANE(k, g->mask)                                                                                \
			name(g->lanes + k, g->frame + k, i);                                                         \
		return i + 1;                                                                                        \
	}                                                                                                            \
	WIDE_FORMS(name, lanes_##name, simd_##name)
#define PLAIN(name, expr32, expr64)                                                                                  \
	ONE(name##_f32, float a = get_f32(r[i->a]); float b = get_f32(r[i->b]); r[i->d] = put_f32_result(expr32))    \
	SINGLES(name##_f32)                                                                                          \
	PURE(name##_f64, double a = get_f64(r[i->a]); double b = get_f64(r[i->b]); r[i->d] = put_f64(expr64))
/* volatile: the operation must stay between the changes of the rounding mode */
#define GENERAL(name, expr32, expr64)                                                                                \
	OP(name##_f32_general, volatile float a = in_f32(r[i->a], i->flags); volatile float b = in_f32(r[i->b], i->flags); \
	   round_begin(i->flags); volatile float out = expr32; round_end(i->flags); r[i->d] = out_f32(out, i->flags)) \
	OP(name##_f64_general, volatile double a = get_f64(r[i->a]); volatile double b = get_f64(r[i->b]);           \
	   round_begin(i->flags); volatile double out = expr64; round_end(i->flags); r[i->d] = put_f64(out))
#define ARITHMETIC(name, expr) PLAIN(name, expr, expr) GENERAL(name, expr, expr)
ARITHMETIC(add, a + b)
ARITHMETIC(sub, a - b)
ARITHMETIC(mul, a *b)
ARITHMETIC(div, a / b)

ONE(fma_f32, r[i->d] = put_f32_result(fmaf(get_f32(r[i->a]), get_f32(r[i->b]), get_f32(r[i->c]))))
SINGLES(fma_f32)
PURE(fma_f64, r[i->d] = put_f64(fma(get_f64(r[i->a]), get_f64(r[i->b]), get_f64(r[i->c]))))
OP(fma_f32_general, volatile float a = in_f32(r[i->a], i->flags); volatile float b = in_f32(r[i->b], i->flags);
   volatile float c = in_f32(r[i->c], i->flags); round_begin(i->flags); volatile float out = fmaf(a, b, c);
   round_end(i->flags); r[i->d] = out_f32(out, i->flags))
OP(fma_f64_general, volatile double a = get_f64(r[i->a]); volatile double b = get_f64(r[i->b]);
   volatile double c = get_f64(r[i->c]); round_begin(i->flags); volatile double out = fma(a, b, c);
   round_end(i->flags); r[i->d] = put_f64(out))

/* -0 is less than +0; a NaN loses against a number unless .NaN asks for it. */
#define PICK(T, suffix)                                                                                              \
	static T pick_##suffix(T a, T b, bool max, bool nan)                                                         \
	{                                                                                                            \
		if (a != a || b != b)                                                                                \
			return nan || (a != a && b != b) ? (T)NAN : a != a ? b : a;                                  \
		if (a == b)                                                                                          \
			return (signbit(a) != 0) == max ? b : a;                                                     \
		return (a < b) == max ? b : a;                                                                       \
	}
PICK(float, f32)
PICK(double, f64)
#define MINMAX(name, max)                                                                                            \
	OP(name##_f32, r[i->d] = put_f32_result(pick_f32(get_f32(r[i->a]), get_f32(r[i->b]), max, false)))           \
	OP(name##_f64, r[i->d] = put_f64(pick_f64(get_f64(r[i->a]), get_f64(r[i->b]), max, false)))                  \
	OP(name##_f32_general, float a = in_f32(r[i->a], i->flags); float b = in_f32(r[i->b], i->flags);             \
	   bool x = i->flags & FLAG_XORSIGN; bool p = i->flags & (FLAG_XORSIGN | FLAG_ABS);                          \
	   float m = pick_f32(p ? fabsf(a) : a, p ? fabsf(b) : b, max, i->flags & FLAG_NAN);                         \
	   r[i->d] = put_f32_result(x ? copysignf(m, !signbit(a) == !signbit(b) ? 1.0f : -1.0f) : m))
MINMAX(min, false)
MINMAX(max, true)

/* PTX leaves open what becomes of a NaN; an H200 makes its own of single ones, and keeps double ones but for making them quiet. */
#define IS_NAN_F32(a) (((a) & 0x7fffffff) > 0x7f800000)
#define IS_NAN_F64(a) (((a) & ~((u64)1 << 63)) > (u64)0x7ff << 52)
PURE(abs_f32, u32 a = (u32)r[i->a]; r[i->d] = IS_NAN_F32(a) ? 0x7fffffff : a & 0x7fffffff)
PURE(neg_f32, u32 a = (u32)r[i->a]; r[i->d] = IS_NAN_F32(a) ? 0x7fffffff : a ^ 0x80000000)
PURE(abs_f64, u64 a = r[i->a]; r[i->d] = (a & ~((u64)1 << 63)) | (u64)IS_NAN_F64(a) << 51)
PURE(neg_f64, u64 a = r[i->a]; r[i->d] = IS_NAN_F64(a) ? a | (u64)1 << 51 : a ^ (u64)1 << 63)
OP(abs_f32_ftz, r[i->d] = put_f32_result(flush_f32(fabsf(get_f32(r[i->a])))))
OP(neg_f32_ftz, r[i->d] = put_f32_result(flush_f32(-get_f32(r[i->a]))))

/* copysign d, a, b: the sign of a, the value of b */
PURE(copysign_f32, r[i->d] = (r[i->a] & 0x80000000) | (r[i->b] & 0x7fffffff))
OP(copysign_f64, u64 sign = (u64)1 << 63; r[i->d] = (r[i->a] & sign) | (r[i->b] & ~sign))

static bool test(int class, uint32_t what)
{
	switch (what) {
	case 0:
		return class != FP_INFINITE && class != FP_NAN;
	case 1:
		return class == FP_INFINITE;
	case 2:
		return class != FP_NAN;
	case 3:
		return class == FP_NAN;
	case 4:
		return class != FP_INFINITE && class != FP_NAN && class != FP_SUBNORMAL && class != FP_ZERO;
	default:
		return class == FP_SUBNORMAL || class == FP_ZERO;
	}
}
OP(testp_f32, r[i->d] = test(fpclassify(get_f32(r[i->a])), i->flags))
OP(testp_f64, r[i->d] = test(fpclassify(get_f64(r[i->a])), i->flags))

/* Reads the modifiers that all arithmetic has. */
static uint16_t take_flags(struct statement *s, enum type type)
{
	uint16_t flags = (uint16_t)(take_rounding(s) << FLAG_ROUND_SHIFT);

	if (type == T_F32 && take(s, "ftz"))
		flags |= FLAG_FTZ;
	if (type == T_F32 && take(s, "sat"))
		flags |= FLAG_SAT;
	return flags;
}

static bool emit_flags(struct body *b, struct statement *s, handler *run, enum type type, uint32_t n, uint16_t flags)
{
	if (!emit_simple(b, s, run, type, n))
		return false;
	b->function->code[b->function->n_code - 1].flags = flags;
	return true;
}

bool decode_float_binary(struct body *b, struct statement *s, enum type type, uint32_t op)
{
	static handler *const table[3][2][2] = {
		{ { add_f32, add_f32_general }, { add_f64, add_f64_general } },
		{ { sub_f32, sub_f32_general }, { sub_f64, sub_f64_general } },
		{ { mul_f32, mul_f32_general }, { mul_f64, mul_f64_general } },
	};
	uint16_t flags;

	if (type != T_F32 && type != T_F64)
		return decode_half(b, s, type, op);
	flags = take_flags(s, type);
	return emit_flags(b, s, table[op][type == T_F64][flags != 0], type, 2, flags);
}

bool decode_fma_of(struct body *b, struct statement *s, enum type type)
{
	static handler *const table[2][2] = { { fma_f32, fma_f32_general }, { fma_f64, fma_f64_general } };
	uint16_t flags;

	if (type != T_F32 && type != T_F64)
		return decode_half(b, s, type, 3);
	flags = take_flags(s, type);
	return emit_flags(b, s, table[type == T_F64][flags != 0], type, 3, flags);
}

DECODER(fma)
{
	enum type type;

	if (take(s, "f32x2"))
		return decode_packed_float(b, s, 3);
	type = take_type(s);
	return type_float(type) && decode_fma_of(b, s, type);
}

OP(worst_div_f32, r[i->d] = out_f32(worst_quotient(in_f32(r[i->a], i->flags), in_f32(r[i->b], i->flags)), i->flags))

bool decode_float_div(struct body *b, struct statement *s, enum type type)
{
	static handler *const table[2][2] = { { div_f32, div_f32_general }, { div_f64, div_f64_general } };
	bool loose = type == T_F32 && (take(s, "approx") || take(s, "full"));
	uint16_t flags;

	if (type != T_F32 && type != T_F64)
		return false;
	flags = loose ? (take(s, "ftz") ? FLAG_FTZ : 0) : take_flags(s, type);
	return emit_flags(b, s, loose && worst_wanted() ? worst_div_f32 : table[type == T_F64][flags != 0], type, 2, flags);
}

/* min and max of three: of two, then with the third */
static bool decode_three(struct body *b, struct statement *s, handler *run, uint16_t flags)
{
	uint32_t between = slot_new(b);
	struct insn *i;

	if (!all_taken(s))
		return false;
	i = emit(b, s, run);
	i->flags = flags;
	i->a = src(b, s, 1, T_F32);
	i->b = src(b, s, 2, T_F32);
	i->d = between;
	i = emit(b, s, run);
	i->flags = flags;
	i->a = between;
	i->b = src(b, s, 3, T_F32);
	i->d = dst(b, s, 0, T_F32);
	return true;
}

bool decode_float_minmax(struct body *b, struct statement *s, enum type type)
{
	static handler *const table[2][3] = { { min_f32, min_f32_general, min_f64 }, { max_f32, max_f32_general, max_f64 } };
	uint16_t flags = 0;

	if (type != T_F32 && type != T_F64)
		return decode_half(b, s, type, 4 + s->variant);
	if (type == T_F64)
		return emit_flags(b, s, table[s->variant][2], type, 2, 0);
	flags |= take(s, "ftz") ? FLAG_FTZ : 0;
	flags |= take(s, "NaN") ? FLAG_NAN : 0;
	if (take(s, "xorsign")) {
		if (!take(s, "abs"))
			return false;
		flags |= FLAG_XORSIGN;
	} else if (s->n == 4) {
		flags |= take(s, "abs") ? FLAG_ABS : 0;
		return decode_three(b, s, table[s->variant][flags != 0], flags);
	}
	return emit_flags(b, s, table[s->variant][flags != 0], type, 2, flags);
}

/* abs and neg: variants 0 and 1 */
bool decode_float_unary(struct body *b, struct statement *s, enum type type)
{
	static handler *const table[2][3] = { { abs_f32, abs_f32_ftz, abs_f64 }, { neg_f32, neg_f32_ftz, neg_f64 } };

	if (type != T_F32 && type != T_F64)
		return decode_half(b, s, type, 6 + s->variant);
	return emit_simple(b, s, table[s->variant][type == T_F64 ? 2 : take(s, "ftz")], type, 1);
}

DECODER(copysign)
{
	enum type type = take_type(s);

	if (type != T_F32 && type != T_F64)
		return false;
	return emit_simple(b, s, type == T_F64 ? copysign_f64 : copysign_f32, type, 2);
}

DECODER(testp)
{
	static const char *const tests[] = { "finite", "infinite", "number", "notanumber", "normal", "subnormal", NULL };
	int what = take_one(s, tests);
	enum type type = take_type(s);
	struct insn *i;

	if (what < 0 || (type != T_F32 && type != T_F64))
		return false;
	operands(b, s, 2, 2);
	i = emit(b, s, type == T_F64 ? testp_f64 : testp_f32);
	i->a = src(b, s, 1, type);
	i->d = dst(b, s, 0, T_PRED);
	i->flags = (uint16_t)what;
	return true;
}
