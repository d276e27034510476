/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of the data types. Conversions and rounding are those of the simulated cuBLAS. */
#include <math.h>

#include "dnn.h"

/* Types of less than a byte count as one. */
static const unsigned char sizes[DN_TYPES] = { 4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 0, 1, 1, 1, 1, 4, 8, 16 };

/* cudaDataType_t of those that are computed, but for 64-bit integers and truth values. */
static int blas_type(int type)
{
	switch (type) {
	case DN_FLOAT:
		return BL_R_32F;
	case DN_DOUBLE:
		return BL_R_64F;
	case DN_HALF:
		return BL_R_16F;
	case DN_INT8:
		return BL_R_8I;
	case DN_INT32:
		return BL_R_32I;
	case DN_UINT8:
		return BL_R_8U;
	case DN_BFLOAT16:
		return BL_R_16BF;
	default:
		return -1;
	}
}

size_t dn_type_bytes(int type)
{
	return type >= 0 && type < DN_TYPES ? sizes[type] : 0;
}

bool dn_is_simulated(int type)
{
	return blas_type(type) >= 0 || type == DN_INT64 || type == DN_BOOLEAN;
}

double dn_get(const void *array, int type, int64_t i)
{
	if (type == DN_FLOAT)
		return ((const float *)array)[i];
	if (type == DN_DOUBLE)
		return ((const double *)array)[i];
	if (type == DN_INT64)
		return (double)((const int64_t *)array)[i];
	if (type == DN_BOOLEAN)
		return ((const uint8_t *)array)[i] != 0;
	return creal(bl_load(array, blas_type(type), i));
}

static int64_t whole(double value)
{
	const double most = 9.2e18;

	if (isnan(value))
		return 0;
	return value > most ? INT64_MAX : value < -most ? INT64_MIN : (int64_t)rint(value);
}

void dn_put(void *array, int type, int64_t i, double value)
{
	if (type == DN_FLOAT)
		((float *)array)[i] = (float)value;
	else if (type == DN_DOUBLE)
		((double *)array)[i] = value;
	else if (type == DN_INT64)
		((int64_t *)array)[i] = whole(value);
	else if (type == DN_BOOLEAN)
		((uint8_t *)array)[i] = value != 0;
	else
		bl_store(array, blas_type(type), i, value);
}
