/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of all data types. All of them are exact as a pair of doubles; a result is rounded once, when it is stored. */
#include <math.h>
#include <string.h>

#include "blas.h"

static const unsigned char sizes[BL_TYPES] = {
	[BL_R_32F] = 4, [BL_R_64F] = 8, [BL_R_16F] = 2, [BL_R_8I] = 1,	 [BL_C_32F] = 8,  [BL_C_64F] = 16,
	[BL_C_16F] = 4, [BL_C_8I] = 2,	[BL_R_8U] = 1,	[BL_R_32I] = 4, [BL_R_16BF] = 2, [BL_C_16BF] = 4,
};

size_t bl_size(int type)
{
	return type >= 0 && type < BL_TYPES ? sizes[type] : 0;
}

bool bl_is_complex(int type)
{
	return type == BL_C_32F || type == BL_C_64F || type == BL_C_16F || type == BL_C_8I || type == BL_C_16BF;
}

/* Sums of products of small integers are exact in doubles. */
int bl_base(int type)
{
	if (type == BL_R_64F || type == BL_C_64F)
		return type;
	if (bl_is_complex(type))
		return BL_C_32F;
	return type == BL_R_8I || type == BL_R_32I || type == BL_R_8U ? BL_R_64F : BL_R_32F;
}

static int part_type(int type)
{
	switch (type) {
	case BL_C_32F:
		return BL_R_32F;
	case BL_C_64F:
		return BL_R_64F;
	case BL_C_16F:
		return BL_R_16F;
	case BL_C_16BF:
		return BL_R_16BF;
	case BL_C_8I:
		return BL_R_8I;
	default:
		return type;
	}
}

static float from_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof value);
	return value;
}

/* To the nearest, ties to even. */
static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	if (isnan(value))
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double load_part(const void *array, int type, int64_t i)
{
	switch (type) {
	case BL_R_32F:
		return ((const float *)array)[i];
	case BL_R_64F:
		return ((const double *)array)[i];
	case BL_R_16F:
		return (double)((const _Float16 *)array)[i];
	case BL_R_16BF:
		return from_bf16(((const uint16_t *)array)[i]);
	case BL_R_8I:
		return ((const int8_t *)array)[i];
	case BL_R_8U:
		return ((const uint8_t *)array)[i];
	default:
		return ((const int32_t *)array)[i];
	}
}

static int64_t clamp(double value, int64_t low, int64_t high)
{
	double whole = rint(value);

	if (isnan(whole))
		return 0;
	return whole < (double)low ? low : whole > (double)high ? high : (int64_t)whole;
}

/* Sums of 32 bits wrap around, as an accumulator does. */
static int32_t wrap(double value)
{
	double whole = rint(value);

	return isfinite(whole) && fabs(whole) < 9e18 ? (int32_t)(uint32_t)(int64_t)whole : 0;
}

static void store_part(void *array, int type, int64_t i, double value)
{
	switch (type) {
	case BL_R_32F:
		((float *)array)[i] = (float)value;
		break;
	case BL_R_64F:
		((double *)array)[i] = value;
		break;
	case BL_R_16F:
		((_Float16 *)array)[i] = (_Float16)value;
		break;
	case BL_R_16BF:
		((uint16_t *)array)[i] = to_bf16((float)value);
		break;
	case BL_R_8I:
		((int8_t *)array)[i] = (int8_t)clamp(value, INT8_MIN, INT8_MAX);
		break;
	case BL_R_8U:
		((uint8_t *)array)[i] = (uint8_t)clamp(value, 0, UINT8_MAX);
		break;
	default:
		((int32_t *)array)[i] = wrap(value);
	}
}

double complex bl_load(const void *array, int type, int64_t i)
{
	int part = part_type(type);

	if (part == type)
		return load_part(array, type, i);
	return CMPLX(load_part(array, part, 2 * i), load_part(array, part, 2 * i + 1));
}

void bl_store(void *array, int type, int64_t i, double complex value)
{
	int part = part_type(type);

	if (part == type) {
		store_part(array, type, i, creal(value));
		return;
	}
	store_part(array, part, 2 * i, creal(value));
	store_part(array, part, 2 * i + 1, cimag(value));
}

void bl_convert(void *to, int to_type, int64_t to_ld, const void *from, int from_type, int64_t from_ld, int64_t rows,
		int64_t cols)
{
	size_t size = bl_size(to_type);

	for (int64_t j = 0; j < cols; j++) {
		char *to_column = (char *)to + (size_t)(j * to_ld) * size;
		const char *from_column = (const char *)from + (size_t)(j * from_ld) * bl_size(from_type);

		if (to_type == from_type) {
			memmove(to_column, from_column, (size_t)rows * size);
			continue;
		}
		for (int64_t i = 0; i < rows; i++)
			bl_store(to_column, to_type, i, bl_load(from_column, from_type, i));
	}
}
