/* SPDX-License-Identifier: Apache-2.0 */
/* cvt. Integers are widened to 64 bits first, floating-point numbers to the widest format; both are exact. */
#include "rounding.h"

/* Integer to integer: the narrower of both types says what is kept. */
#define EXTEND(T) PURE(extend_##T, r[i->d] = (u64)(T)r[i->a])
EXTEND(u8) EXTEND(u16) EXTEND(u32) EXTEND(u64) EXTEND(s8) EXTEND(s16) EXTEND(s32) EXTEND(s64)
static handler *const extend_table[T_COUNT] = {
	[T_U8] = extend_u8, [T_U16] = extend_u16, [T_U32] = extend_u32, [T_U64] = extend_u64,
	[T_S8] = extend_s8, [T_S16] = extend_s16, [T_S32] = extend_s32, [T_S64] = extend_s64,
};

/* The general form keeps its types in `b` (from) and `c` (to), which are no slots here. */
enum { CVT_INTEGRAL = 0x1000, CVT_FINITE = 0x2000 };

static int64_t extend(u64 cell, enum type type)
{
	uint32_t shift = 64 - 8 * type_size(type);

	return type_signed(type) ? (int64_t)(cell << shift) >> shift : (int64_t)(cell << shift >> shift);
}

static u64 saturate_int(int64_t v, enum type from, enum type to)
{
	uint32_t bits = 8 * type_size(to);
	bool negative = type_signed(from) && v < 0;
	u64 most = type_signed(to) ? ((u64)1 << (bits - 1)) - 1 : bits == 64 ? ~(u64)0 : ((u64)1 << bits) - 1;

	if (!negative)
		return (u64)v > most ? most : (u64)v;
	if (!type_signed(to))
		return 0;
	return v < -(int64_t)most - 1 ? 0 - most - 1 : (u64)v;
}

OP(int_to_int, enum type from = (enum type)i->b; enum type to = (enum type)i->c; int64_t v = extend(r[i->a], from);
   r[i->d] = (u64)extend(i->flags & FLAG_SAT ? saturate_int(v, from, to) : (u64)v, to))

static long double load_float(u64 cell, enum type type, uint32_t flags)
{
	switch (type) {
	case T_F16:
		return (long double)half_to_float((u16)cell);
	case T_BF16:
		return (long double)get_f32((u64)(u16)cell << 16);
	case T_F32:
		return (long double)in_f32(cell, flags);
	default:
		return (long double)get_f64(cell);
	}
}

static long double integral(long double v, enum rounding rounding)
{
	switch (rounding) {
	case ROUND_RZ:
		return truncl(v);
	case ROUND_RM:
		return floorl(v);
	case ROUND_RP:
		return ceill(v);
	default:
		return nearbyintl(v);
	}
}

/*
 * PTX ISA 9.7.9.21, cvt: NaN gives zero, but the number with only its highest bit set where the source is .f64 or the
 * destination has 64 bits.
 */
static u64 nan_to_int(enum type from, enum type to)
{
	uint32_t bits = 8 * type_size(to);

	if (from != T_F64 && bits != 64)
		return 0;
	return type_signed(to) ? 0 - ((u64)1 << (bits - 1)) : (u64)1 << (bits - 1);
}

/* Out of range gives the nearest number in range. */
static u64 float_to_int(long double v, enum type from, enum type to, enum rounding rounding)
{
	uint32_t bits = 8 * type_size(to);
	long double limit = ldexpl(1, (int)bits - type_signed(to));

	if (isnan(v))
		return nan_to_int(from, to);
	v = integral(v, rounding);
	if (type_signed(to)) {
		if (v >= limit)
			return ((u64)1 << (bits - 1)) - 1;
		return v < -limit ? 0 - ((u64)1 << (bits - 1)) : (u64)(int64_t)v;
	}
	if (v >= limit)
		return bits == 64 ? ~(u64)0 : ((u64)1 << bits) - 1;
	return v < 0 ? 0 : (u64)v;
}

static u64 store_float(long double v, enum type to, uint32_t flags)
{
	enum rounding rounding = flag_rounding(flags & 0x3ff);
	u64 out;

	if (flags & FLAG_SAT)
		v = v > 0 ? v < 1 ? v : 1 : 0;
	if (flags & FLAG_RELU)
		v = v > 0 || isnan(v) ? v : 0;
	if (to == T_F16)
		return encode_float(v, 10, 5, rounding, flags & CVT_FINITE);
	if (to == T_BF16)
		return encode_float(v, 7, 8, rounding, flags & CVT_FINITE);
	round_begin(flags & 0x3ff);
	if (to == T_F32) {
		volatile float f = (float)v;

		round_end(flags & 0x3ff);
		return put_f32_result(flags & FLAG_FTZ ? flush_f32(f) : f);
	}
	volatile double d = (double)v;

	round_end(flags & 0x3ff);
	out = put_f64(d);
	return out;
}

OP(int_to_float, enum type from = (enum type)i->b; int64_t v = extend(r[i->a], from);
   r[i->d] = store_float(type_signed(from) ? (long double)v : (long double)(u64)v, (enum type)i->c, i->flags))
OP(float_to_int_any, enum type from = (enum type)i->b;
   r[i->d] = float_to_int(load_float(r[i->a], from, i->flags), from, (enum type)i->c, flag_rounding(i->flags & 0x3ff)))
OP(float_to_float, long double v = load_float(r[i->a], (enum type)i->b, i->flags); uint32_t flags = i->flags;
   if (flags & CVT_INTEGRAL) v = integral(v, flag_rounding(flags & 0x3ff)), flags &= ~0x300u;
   r[i->d] = store_float(v, (enum type)i->c, flags))
/* d = {a, b}: a in the upper half; the type is in imm */
OP(floats_to_pair, enum type to = (enum type)i->imm;
   r[i->d] = store_float((long double)in_f32(r[i->a], i->flags), to, i->flags) << 16 |
	     store_float((long double)in_f32(r[i->b], i->flags), to, i->flags))

PURE(s32_to_f32, r[i->d] = put_f32((float)(s32)r[i->a]))
PURE(u32_to_f32, r[i->d] = put_f32((float)(u32)r[i->a]))
PURE(s32_to_f64, r[i->d] = put_f64((double)(s32)r[i->a]))
PURE(u32_to_f64, r[i->d] = put_f64((double)(u32)r[i->a]))
PURE(f32_to_f64, r[i->d] = put_f64((double)get_f32(r[i->a])))
/* an H200 makes another NaN here than in arithmetic */
PURE(f64_to_f32, double a = get_f64(r[i->a]); r[i->d] = a == a ? put_f32_result((float)a) : 0x7fc00000)
PURE(f32_to_s32, float f = get_f32(r[i->a]); r[i->d] = f >= 0x1p31f ? INT32_MAX : f >= -0x1p31f ? (u64)(s32)f : f == f ? (u64)INT32_MIN : 0)
PURE(f16_to_f32, r[i->d] = put_f32_result(half_to_float((u16)r[i->a])))

/* Common conversions whose default flags need no more. */
static handler *quick(enum type to, enum type from, uint32_t flags)
{
	if (to == T_F32 && !flags)
		return from == T_S32 ? s32_to_f32 : from == T_U32 ? u32_to_f32 : from == T_F64 ? f64_to_f32 :
		       from == T_F16 ? f16_to_f32 : NULL;
	if (to == T_F64 && !flags)
		return from == T_S32 ? s32_to_f64 : from == T_U32 ? u32_to_f64 : from == T_F32 ? f32_to_f64 : NULL;
	if (to == T_S32 && from == T_F32 && flags == (ROUND_RZ << FLAG_ROUND_SHIFT | CVT_INTEGRAL))
		return f32_to_s32;
	return NULL;
}

static handler *general(enum type to, enum type from)
{
	if (type_float(to))
		return type_float(from) ? float_to_float : int_to_float;
	return type_float(from) ? float_to_int_any : int_to_int;
}

static bool scalar(enum type type)
{
	return (type >= T_U8 && type <= T_S64) || type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64;
}

/* Register width that a type asks for: 8-bit values live in wider registers. */
static enum type register_type(enum type type)
{
	switch (type_size(type)) {
	case 1:
		return T_B8;
	case 2:
		return T_B16;
	case 4:
		return T_B32;
	default:
		return T_B64;
	}
}

static uint16_t take_cvt_flags(struct statement *s)
{
	static const char *const integrals[] = { "rni", "rzi", "rmi", "rpi", NULL };
	int mode = take_one(s, integrals);
	uint32_t flags = mode < 0 ? (uint32_t)take_rounding(s) << FLAG_ROUND_SHIFT :
				    (uint32_t)mode << FLAG_ROUND_SHIFT | CVT_INTEGRAL;

	flags |= take(s, "ftz") ? FLAG_FTZ : 0;
	flags |= take(s, "sat") ? FLAG_SAT : 0;
	flags |= take(s, "relu") ? FLAG_RELU : 0;
	flags |= take(s, "satfinite") ? CVT_FINITE : 0;
	return (uint16_t)flags;
}

static bool decode_pair(struct body *b, struct statement *s, enum type to, uint16_t flags)
{
	struct insn *i;

	operands(b, s, 3, 3);
	if (flags & (FLAG_SAT | CVT_INTEGRAL))
		return false;
	i = emit(b, s, floats_to_pair);
	i->a = src(b, s, 1, T_F32);
	i->b = src(b, s, 2, T_F32);
	i->d = dst(b, s, 0, T_B32);
	i->flags = flags;
	i->imm = to == T_F16X2 ? T_F16 : T_BF16;
	return true;
}

/* Flags that mean nothing for these types make the instruction one that we do not know. */
static bool flags_fit(enum type to, enum type from, uint32_t flags)
{
	bool single = to == T_F32 || from == T_F32, half = to == T_F16 || to == T_BF16;

	if (flags & (FLAG_RELU | CVT_FINITE) && (!half || from != T_F32))
		return false;
	if (flags & FLAG_FTZ && !single)
		return false;
	if (flags & CVT_INTEGRAL)
		return type_float(from) && (!type_float(to) || to == from);
	if (!type_float(to))
		return !type_float(from) && !(flags >> FLAG_ROUND_SHIFT & 3);
	return true;
}

DECODER(cvt)
{
	enum type to, from;
	uint16_t flags;
	handler *run;
	struct insn *i;
	bool narrow, decoded = decode_cvt_narrow(b, s, &narrow);

	if (narrow)
		return decoded;
	flags = take_cvt_flags(s);
	to = take_type(s);
	from = take_type(s);
	if ((to == T_F16X2 || to == T_BF16X2) && from == T_F32)
		return decode_pair(b, s, to, flags);
	if (!scalar(to) || !scalar(from) || !flags_fit(to, from, flags))
		return false;
	operands(b, s, 2, 2);
	narrow = s->operands[0].kind == O_REG && type_size(s->operands[0].type) == type_size(to);
	run = quick(to, from, flags);
	if (!run && !type_float(to) && !type_float(from) && !flags && narrow)
		run = extend_table[type_size(to) < type_size(from) ? to : from];
	i = emit(b, s, run ? run : general(to, from));
	i->a = src_wide(b, s, 1, register_type(from));
	i->d = dst_wide(b, s, 0, register_type(to));
	i->b = from;
	i->c = to;
	i->flags = flags;
	return true;
}
