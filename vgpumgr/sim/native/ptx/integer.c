/* SPDX-License-Identifier: Apache-2.0 */
/* Integer arithmetic: add to rem, min and max, sad, and the dot products. */
#include "ops.h"

BINARY_UNSIGNED(add, a + b)
BINARY_UNSIGNED(sub, a - b)
BINARY_UNSIGNED(mul_lo, (uint64_t)a * b)
BINARY_ALL(min, a < b ? a : b)
BINARY_ALL(max, a > b ? a : b)

/* Division by zero gives all ones, its remainder too: PTX leaves it open, an H200 does so (seen with 32 bits). */
BINARY_UNSIGNED(div, b ? a / b : UINT64_MAX)
BINARY_UNSIGNED(rem, b ? a % b : UINT64_MAX)
#define SIGNED_DIV(T)                                                                                                \
	OP(div_##T, T a = (T)r[i->a]; T b = (T)r[i->b];                                                              \
	   r[i->d] = !b ? UINT64_MAX : b == -1 ? 0 - (uint64_t)a : (uint64_t)(int64_t)(T)(a / b))                    \
	OP(rem_##T, T a = (T)r[i->a]; T b = (T)r[i->b];                                                              \
	   r[i->d] = !b ? UINT64_MAX : b == -1 ? 0 : (uint64_t)(int64_t)(T)(a % b))
SIGNED_DIV(s16)
SIGNED_DIV(s32)
SIGNED_DIV(s64)

OP(mul_hi_u16, r[i->d] = (uint32_t)(u16)r[i->a] * (uint32_t)(u16)r[i->b] >> 16)
OP(mul_hi_s16, r[i->d] = (uint64_t)(int64_t)((int32_t)(s16)r[i->a] * (s16)r[i->b] >> 16))
PURE(mul_hi_u32, r[i->d] = (uint64_t)(u32)r[i->a] * (u32)r[i->b] >> 32)
PURE(mul_hi_s32, r[i->d] = (uint64_t)((int64_t)(s32)r[i->a] * (s32)r[i->b] >> 32))
OP(mul_hi_u64, r[i->d] = (uint64_t)((unsigned __int128)r[i->a] * r[i->b] >> 64))
OP(mul_hi_s64, r[i->d] = (uint64_t)((__int128)(s64)r[i->a] * (s64)r[i->b] >> 64))
PURE(mul_wide_u16, r[i->d] = (uint32_t)(u16)r[i->a] * (uint32_t)(u16)r[i->b])
PURE(mul_wide_s16, r[i->d] = (uint64_t)(int64_t)((int32_t)(s16)r[i->a] * (s16)r[i->b]))
PURE(mul_wide_u32, r[i->d] = (uint64_t)(u32)r[i->a] * (u32)r[i->b])
PURE(mul_wide_s32, r[i->d] = (uint64_t)((int64_t)(s32)r[i->a] * (s32)r[i->b]))

PURE(mad_lo, r[i->d] = r[i->a] * r[i->b] + r[i->c])
OP(mad_hi_u16, r[i->d] = ((uint32_t)(u16)r[i->a] * (uint32_t)(u16)r[i->b] >> 16) + r[i->c])
OP(mad_hi_s16, r[i->d] = (uint64_t)(int64_t)((int32_t)(s16)r[i->a] * (s16)r[i->b] >> 16) + r[i->c])
PURE(mad_hi_u32, r[i->d] = ((uint64_t)(u32)r[i->a] * (u32)r[i->b] >> 32) + r[i->c])
PURE(mad_hi_s32, r[i->d] = (uint64_t)((int64_t)(s32)r[i->a] * (s32)r[i->b] >> 32) + r[i->c])
OP(mad_hi_u64, r[i->d] = (uint64_t)((unsigned __int128)r[i->a] * r[i->b] >> 64) + r[i->c])
OP(mad_hi_s64, r[i->d] = (uint64_t)((__int128)(s64)r[i->a] * (s64)r[i->b] >> 64) + r[i->c])
OP(mad_wide_u16, r[i->d] = (uint32_t)(u16)r[i->a] * (uint32_t)(u16)r[i->b] + r[i->c])
OP(mad_wide_s16, r[i->d] = (uint64_t)(int64_t)((int32_t)(s16)r[i->a] * (s16)r[i->b]) + r[i->c])
PURE(mad_wide_u32, r[i->d] = (uint64_t)(u32)r[i->a] * (u32)r[i->b] + r[i->c])
PURE(mad_wide_s32, r[i->d] = (uint64_t)((int64_t)(s32)r[i->a] * (s32)r[i->b]) + r[i->c])

static uint64_t saturate32(int64_t v)
{
	return (uint64_t)(v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v);
}
OP(add_sat, r[i->d] = saturate32((int64_t)(s32)r[i->a] + (s32)r[i->b]))
OP(sub_sat, r[i->d] = saturate32((int64_t)(s32)r[i->a] - (s32)r[i->b]))
OP(mad_hi_sat, r[i->d] = saturate32(((int64_t)(s32)r[i->a] * (s32)r[i->b] >> 32) + (s32)r[i->c]))

#define HALVES(name, T, expr)                                                                                        \
	OP(name, uint32_t out = 0; for (int k = 0; k < 32; k += 16) {                                                \
		T a = (T)(r[i->a] >> k), b = (T)(r[i->b] >> k);                                                      \
		out |= (uint32_t)(u16)(expr) << k;                                                                   \
	} r[i->d] = out)
HALVES(add_x2, u16, a + b)
HALVES(min_u16x2, u16, a < b ? a : b)
HALVES(max_u16x2, u16, a > b ? a : b)
HALVES(min_s16x2, s16, a < b ? a : b)
HALVES(max_s16x2, s16, a > b ? a : b)
HALVES(min_relu_x2, s16, a < b ? (a < 0 ? 0 : a) : (b < 0 ? 0 : b))
HALVES(max_relu_x2, s16, a > b ? (a < 0 ? 0 : a) : (b < 0 ? 0 : b))
OP(min_relu, s32 a = (s32)r[i->a]; s32 b = (s32)r[i->b]; s32 m = a < b ? a : b; r[i->d] = (uint64_t)(m < 0 ? 0 : m))
OP(max_relu, s32 a = (s32)r[i->a]; s32 b = (s32)r[i->b]; s32 m = a > b ? a : b; r[i->d] = (uint64_t)(m < 0 ? 0 : m))

OP(abs_s16, s16 a = (s16)r[i->a]; r[i->d] = (uint64_t)(a < 0 ? -(int64_t)a : a))
PURE(abs_s32, s32 a = (s32)r[i->a]; r[i->d] = (uint64_t)(a < 0 ? -(int64_t)a : a))
PURE(abs_s64, s64 a = (s64)r[i->a]; r[i->d] = a < 0 ? 0 - (uint64_t)a : (uint64_t)a)
PURE(neg_int, r[i->d] = 0 - r[i->a])

#define SAD(T)                                                                                                       \
	OP(sad_##T, T a = (T)r[i->a]; T b = (T)r[i->b];                                                              \
	   r[i->d] = r[i->c] + (a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b))
SAD(u16) SAD(u32) SAD(u64) SAD(s16) SAD(s32) SAD(s64)

#define U24(x) ((uint64_t)(x) & 0xffffff)
#define S24(x) ((int64_t)((uint64_t)(x) << 40) >> 40)
OP(mul24_lo_u, r[i->d] = (u32)(U24(r[i->a]) * U24(r[i->b])))
OP(mul24_hi_u, r[i->d] = (u32)(U24(r[i->a]) * U24(r[i->b]) >> 16))
OP(mul24_lo_s, r[i->d] = (u32)(S24(r[i->a]) * S24(r[i->b])))
OP(mul24_hi_s, r[i->d] = (u32)(S24(r[i->a]) * S24(r[i->b]) >> 16))
OP(mad24_lo_u, r[i->d] = (u32)(U24(r[i->a]) * U24(r[i->b]) + r[i->c]))
OP(mad24_hi_u, r[i->d] = (u32)((U24(r[i->a]) * U24(r[i->b]) >> 16) + r[i->c]))
OP(mad24_lo_s, r[i->d] = (u32)((uint64_t)(S24(r[i->a]) * S24(r[i->b])) + r[i->c]))
OP(mad24_hi_s, r[i->d] = (u32)((uint64_t)(S24(r[i->a]) * S24(r[i->b]) >> 16) + r[i->c]))
OP(mad24_hi_sat, r[i->d] = saturate32((S24(r[i->a]) * S24(r[i->b]) >> 16) + (s32)r[i->c]))

/* flags: 1: a is signed, 2: b is signed, 4: dp2a takes b's upper half */
static int32_t byte_of(uint64_t v, int n, bool is_signed)
{
	return is_signed ? (int8_t)(v >> 8 * n) : (uint8_t)(v >> 8 * n);
}
OP(dp4a, uint32_t sum = (u32)r[i->c]; for (int k = 0; k < 4; k++)
	sum += (uint32_t)(byte_of(r[i->a], k, i->flags & 1) * byte_of(r[i->b], k, i->flags & 2));
   r[i->d] = sum)
OP(dp2a, uint32_t sum = (u32)r[i->c]; for (int k = 0; k < 2; k++) {
	uint32_t half = (u16)(r[i->a] >> 16 * k);
	if (i->flags & 1)
		half = (uint32_t)(int32_t)(s16)half;
	sum += half * (uint32_t)byte_of(r[i->b], k + (i->flags & 4 ? 2 : 0), i->flags & 2);
} r[i->d] = sum)

static handler *const add_table[T_COUNT] = { INTEGER_TABLE_UNSIGNED(add), [T_U16X2] = add_x2, [T_S16X2] = add_x2 };
static handler *const sub_table[T_COUNT] = { INTEGER_TABLE_UNSIGNED(sub) };
static handler *const mul_table[3][T_COUNT] = {
	{ INTEGER_TABLE_UNSIGNED(mul_lo) },
	{ INTEGER_TABLE(mul_hi) },
	{ [T_U16] = mul_wide_u16, [T_S16] = mul_wide_s16, [T_U32] = mul_wide_u32, [T_S32] = mul_wide_s32 },
};
static handler *const mad_table[3][T_COUNT] = {
	{ [T_U16] = mad_lo, [T_U32] = mad_lo, [T_U64] = mad_lo, [T_S16] = mad_lo, [T_S32] = mad_lo, [T_S64] = mad_lo },
	{ INTEGER_TABLE(mad_hi) },
	{ [T_U16] = mad_wide_u16, [T_S16] = mad_wide_s16, [T_U32] = mad_wide_u32, [T_S32] = mad_wide_s32 },
};
static handler *const div_table[T_COUNT] = { INTEGER_TABLE(div) };
static handler *const rem_table[T_COUNT] = { INTEGER_TABLE(rem) };
static handler *const minmax_table[2][T_COUNT] = {
	{ INTEGER_TABLE(min), [T_U16X2] = min_u16x2, [T_S16X2] = min_s16x2 },
	{ INTEGER_TABLE(max), [T_U16X2] = max_u16x2, [T_S16X2] = max_s16x2 },
};
static handler *const sad_table[T_COUNT] = { INTEGER_TABLE(sad) };
static handler *const abs_table[T_COUNT] = { [T_S16] = abs_s16, [T_S32] = abs_s32, [T_S64] = abs_s64 };
static handler *const neg_table[T_COUNT] = { [T_S16] = neg_int, [T_S32] = neg_int, [T_S64] = neg_int };

static bool add_or_sub(struct body *b, struct statement *s, uint32_t op)
{
	enum type type;

	if (take(s, "f32x2"))
		return decode_packed_float(b, s, op);
	type = take_type(s);
	if (type_float(type))
		return decode_float_binary(b, s, type, op);
	if (take(s, "cc"))
		return decode_carry_out(b, s, type, op);
	if (take(s, "sat"))
		return type == T_S32 && emit_simple(b, s, op ? sub_sat : add_sat, type, 2);
	return emit_simple(b, s, (op ? sub_table : add_table)[type], type, 2);
}

DECODER(add)
{
	return add_or_sub(b, s, 0);
}

DECODER(sub)
{
	return add_or_sub(b, s, 1);
}

static int take_part(struct statement *s)
{
	static const char *const parts[] = { "lo", "hi", "wide", NULL };

	return take_one(s, parts);
}

static enum type doubled(enum type type)
{
	return type + 1; /* the type list runs from 8 to 64 bits */
}

DECODER(mul)
{
	enum type type;
	int part;
	struct insn *i;

	if (take(s, "f32x2"))
		return decode_packed_float(b, s, 2);
	type = take_type(s);
	part = take_part(s);
	if (type_float(type))
		return part < 0 && decode_float_binary(b, s, type, 2);
	if (part < 0 || !mul_table[part][type])
		return false;
	if (part != 2)
		return emit_simple(b, s, mul_table[part][type], type, 2);
	operands(b, s, 3, 3);
	i = emit(b, s, mul_table[part][type]);
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, type);
	i->d = dst(b, s, 0, doubled(type));
	return true;
}

DECODER(mad)
{
	enum type type = take_type(s);
	int part = take_part(s);
	handler *run;
	struct insn *i;

	if (type_float(type))
		return part < 0 && decode_fma_of(b, s, type);
	if (part < 0 || !(run = mad_table[part][type]))
		return false;
	if (take(s, "cc"))
		return decode_mad_carry(b, s, type, part, false, true);
	if (take(s, "sat")) {
		if (type != T_S32 || part != 1)
			return false;
		run = mad_hi_sat;
	}
	operands(b, s, 4, 4);
	i = emit(b, s, run);
	i->a = src(b, s, 1, type);
	i->b = src(b, s, 2, type);
	i->c = src(b, s, 3, part == 2 ? doubled(type) : type);
	i->d = dst(b, s, 0, part == 2 ? doubled(type) : type);
	return true;
}

DECODER(mul24)
{
	static handler *const table[2][2][2] = { { { mul24_lo_u, mul24_lo_s }, { mul24_hi_u, mul24_hi_s } },
						 { { mad24_lo_u, mad24_lo_s }, { mad24_hi_u, mad24_hi_s } } };
	enum type type = take_type(s);
	int part = take_part(s);

	if ((type != T_U32 && type != T_S32) || part < 0 || part > 1)
		return false;
	if (s->variant && take(s, "sat"))
		return part == 1 && type == T_S32 && emit_simple(b, s, mad24_hi_sat, type, 3);
	return emit_simple(b, s, table[s->variant][part][type == T_S32], type, s->variant ? 3 : 2);
}

DECODER(div)
{
	enum type type = take_type(s);

	if (type_float(type))
		return decode_float_div(b, s, type);
	return emit_simple(b, s, div_table[type], type, 2);
}

DECODER(rem)
{
	enum type type = take_type(s);

	return emit_simple(b, s, rem_table[type], type, 2);
}

DECODER(minmax)
{
	enum type type = take_type(s);

	if (type_float(type))
		return decode_float_minmax(b, s, type);
	if (type == T_S16X2 && take(s, "relu"))
		return emit_simple(b, s, s->variant ? max_relu_x2 : min_relu_x2, type, 2);
	if (take(s, "relu"))
		return type == T_S32 && emit_simple(b, s, s->variant ? max_relu : min_relu, type, 2);
	return emit_simple(b, s, minmax_table[s->variant][type], type, 2);
}

DECODER(abs)
{
	enum type type = take_type(s);

	if (type_float(type))
		return decode_float_unary(b, s, type);
	return emit_simple(b, s, abs_table[type], type, 1);
}

DECODER(neg)
{
	enum type type = take_type(s);

	s->variant = 1;
	if (type_float(type))
		return decode_float_unary(b, s, type);
	return emit_simple(b, s, neg_table[type], type, 1);
}

DECODER(sad)
{
	enum type type = take_type(s);

	return emit_simple(b, s, sad_table[type], type, 3);
}

DECODER(dot)
{
	bool high = s->variant && take(s, "hi"), low = s->variant && take(s, "lo");
	enum type a = take_type(s), c = take_type(s);

	if ((a != T_U32 && a != T_S32) || (c != T_U32 && c != T_S32) || (s->variant && high == low))
		return false;
	if (!emit_simple(b, s, s->variant ? dp2a : dp4a, T_B32, 3))
		return false;
	b->function->code[b->function->n_code - 1].flags =
		(uint16_t)((a == T_S32 ? 1 : 0) | (c == T_S32 ? 2 : 0) | (high ? 4 : 0));
	return true;
}
