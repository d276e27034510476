/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integers are reduced in their own type, with wrapping; floats below 32 bits as floats, rounded once at the end to the nearest even.
 * Eight bits saturate at the largest finite number, as the vendor's conversions do.
 */
#include "reduce.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 1024 };

size_t type_bytes(ncclDataType_t type)
{
	static const uint8_t bytes[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return (unsigned int)type < ncclNumTypes ? bytes[type] : 0;
}

static float as_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t as_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* A format with so many bits of exponent and fraction, IEEE's but for what follows. */
struct format {
	int exponent, fraction, bytes;
	bool finite;   /* no infinities: all but one pattern of the largest exponent are numbers */
	bool saturate; /* what is too large is the largest number */
};

static const struct format HALF = { 5, 10, 2, false, false }, E4M3 = { 4, 3, 1, true, true }, E5M2 = { 5, 2, 1, false, true };

static inline float decode(const struct format *f, uint32_t bits)
{
	int bias = (1 << (f->exponent - 1)) - 1, top = (1 << f->exponent) - 1;
	uint32_t fraction = bits & ((1u << f->fraction) - 1), exponent = bits >> f->fraction & (uint32_t)top;
	uint32_t sign = (bits >> (f->exponent + f->fraction) & 1) << 31;
	bool all = fraction == (1u << f->fraction) - 1;

	if (exponent == (uint32_t)top && (!f->finite || all))
		return as_float(sign | 0x7f800000u | (f->finite ? 0x400000u : fraction << (23 - f->fraction)));
	if (!exponent) {
		float value = (float)fraction * as_float((uint32_t)(127 + 1 - bias - f->fraction) << 23);

		return sign ? -value : value;
	}
	return as_float(sign | (exponent + 127 - (uint32_t)bias) << 23 | fraction << (23 - f->fraction));
}

/* The largest finite number's bits. */
static inline uint32_t largest(const struct format *f)
{
	uint32_t top = ((1u << f->exponent) - 1) << f->fraction;

	return f->finite ? top | ((1u << f->fraction) - 2) : top - 1;
}

static inline uint32_t encode(const struct format *f, float value)
{
	int bias = (1 << (f->exponent - 1)) - 1, shift = 23 - f->fraction, exponent;
	uint32_t bits = as_bits(value), magnitude = bits & 0x7fffffffu, sign = bits >> 31 << (f->exponent + f->fraction), rounded;
	uint32_t infinity = ((1u << f->exponent) - 1) << f->fraction;

	if (magnitude > 0x7f800000u)
		return sign | infinity | (f->finite ? (1u << f->fraction) - 1 : 1u << (f->fraction - 1));
	exponent = (int)(magnitude >> 23) - 127 + bias;
	if (exponent < 1) { /* below its normal numbers: a number of the smallest steps */
		float steps = as_float(magnitude) * as_float((uint32_t)(127 - 1 + bias + f->fraction) << 23);

		return sign | (uint32_t)nearbyintf(steps);
	}
	rounded = magnitude + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1);
	rounded = (rounded >> shift) - ((uint32_t)(127 - bias) << f->fraction);
	if (rounded > largest(f) || magnitude == 0x7f800000u)
		return sign | (f->saturate ? largest(f) : infinity);
	return sign | rounded;
}

static inline float decode_brain(uint16_t bits)
{
	return as_float((uint32_t)bits << 16);
}

static inline uint16_t encode_brain(float value)
{
	uint32_t bits = as_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- blocks of one type of numbers */

#define FMAX(a, b) (isnan(a) ? (b) : isnan(b) || (a) > (b) ? (a) : (b))
#define FMIN(a, b) (isnan(a) ? (b) : isnan(b) || (a) < (b) ? (a) : (b))
#define IMAX(a, b) ((a) > (b) ? (a) : (b))
#define IMIN(a, b) ((a) < (b) ? (a) : (b))

/* wide: a type in which a product does not overflow before it is cut, unsigned for integers. */
#define BLOCKS(name, type, wide, max, min)                                                                     \
	static void name##_combine(ncclRedOp_t op, type *to, const type *from, size_t n)                       \
	{                                                                                                      \
		switch (op) {                                                                                  \
		case ncclProd:                                                                                 \
			for (size_t i = 0; i < n; i++)                                                         \
				to[i] = (type)((wide)to[i] * (wide)from[i]);                                   \
			break;                                                                                 \
		case ncclMax:                                                                                  \
			for (size_t i = 0; i < n; i++)                                                         \
				to[i] = max(to[i], from[i]);                                                   \
			break;                                                                                 \
		case ncclMin:                                                                                  \
			for (size_t i = 0; i < n; i++)                                                         \
				to[i] = min(to[i], from[i]);                                                   \
			break;                                                                                 \
		default:                                                                                       \
			for (size_t i = 0; i < n; i++)                                                         \
				to[i] = (type)((wide)to[i] + (wide)from[i]);                                   \
		}                                                                                              \
	}                                                                                                      \
	static void name##_scale(type *values, type by, size_t n)                                              \
	{                                                                                                      \
		for (size_t i = 0; i < n; i++)                                                                 \
			values[i] = (type)((wide)values[i] * (wide)by);                                        \
	}                                                                                                      \
	static void name##_divide(type *values, int by, size_t n)                                              \
	{                                                                                                      \
		for (size_t i = 0; i < n; i++)                                                                 \
			values[i] = (type)(values[i] / (type)by);                                              \
	}                                                                                                      \
	static void name##_reduce(const struct reduction *how, void *to, const void *const *from, size_t n)    \
	{                                                                                                      \
		type all[BLOCK], one[BLOCK];                                                                   \
                                                                                                               \
		for (int rank = 0; rank < how->ranks; rank++) {                                                \
			type *into = rank ? one : all;                                                         \
                                                                                                               \
			memcpy(into, from[rank], n * sizeof(type));                                            \
			if (how->scalars) {                                                                    \
				type by;                                                                       \
                                                                                                               \
				memcpy(&by, &how->scalars[rank], sizeof(by));                                  \
				name##_scale(into, by, n);                                                     \
			}                                                                                      \
			if (rank)                                                                              \
				name##_combine(how->op, all, one, n);                                          \
		}                                                                                              \
		if (how->op == ncclAvg)                                                                        \
			name##_divide(all, how->ranks, n);                                                     \
		memcpy(to, all, n * sizeof(type));                                                             \
	}

BLOCKS(int8, int8_t, uint32_t, IMAX, IMIN)
BLOCKS(uint8, uint8_t, uint32_t, IMAX, IMIN)
BLOCKS(int32, int32_t, uint32_t, IMAX, IMIN)
BLOCKS(uint32, uint32_t, uint32_t, IMAX, IMIN)
BLOCKS(int64, int64_t, uint64_t, IMAX, IMIN)
BLOCKS(uint64, uint64_t, uint64_t, IMAX, IMIN)
BLOCKS(float32, float, float, FMAX, FMIN)
BLOCKS(float64, double, double, FMAX, FMIN)

/* ---- small floats: as floats */

static void widen(ncclDataType_t type, float *to, const void *from, size_t n)
{
	const uint16_t *two = from;
	const uint8_t *one = from;

	for (size_t i = 0; i < n; i++) {
		if (type == ncclBfloat16)
			to[i] = decode_brain(two[i]);
		else if (type == ncclFloat16)
			to[i] = decode(&HALF, two[i]);
		else
			to[i] = decode(type == ncclFloat8e4m3 ? &E4M3 : &E5M2, one[i]);
	}
}

static void narrow(ncclDataType_t type, void *to, const float *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (type == ncclBfloat16)
			((uint16_t *)to)[i] = encode_brain(from[i]);
		else if (type == ncclFloat16)
			((uint16_t *)to)[i] = (uint16_t)encode(&HALF, from[i]);
		else
			((uint8_t *)to)[i] = (uint8_t)encode(type == ncclFloat8e4m3 ? &E4M3 : &E5M2, from[i]);
	}
}

static void small_reduce(const struct reduction *how, void *to, const void *const *from, size_t n)
{
	float all[BLOCK], one[BLOCK], by;

	for (int rank = 0; rank < how->ranks; rank++) {
		float *into = rank ? one : all;

		widen(how->type, into, from[rank], n);
		if (how->scalars) {
			widen(how->type, &by, &how->scalars[rank], 1);
			float32_scale(into, by, n);
		}
		if (rank)
			float32_combine(how->op, all, one, n);
	}
	if (how->op == ncclAvg)
		float32_divide(all, how->ranks, n);
	narrow(how->type, to, all, n);
}

typedef void block_reducer(const struct reduction *how, void *to, const void *const *from, size_t n);

static block_reducer *const REDUCERS[ncclNumTypes] = {
	int8_reduce, uint8_reduce, int32_reduce, uint32_reduce, int64_reduce, uint64_reduce,
	small_reduce, float32_reduce, float64_reduce, small_reduce, small_reduce, small_reduce,
};

void reduce(const struct reduction *how, void *to, const void *const *from, size_t count)
{
	size_t bytes = type_bytes(how->type);
	const void *block[64]; /* SG_RANKS */

	for (size_t done = 0; done < count; done += BLOCK) {
		size_t n = count - done < BLOCK ? count - done : BLOCK;

		for (int rank = 0; rank < how->ranks; rank++)
			block[rank] = (const uint8_t *)from[rank] + done * bytes;
		REDUCERS[how->type](how, (uint8_t *)to + done * bytes, block, n);
	}
}
