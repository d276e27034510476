/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 8-bit floating-point formats. e5m2 is the upper half of an f16. e4m3 has no infinity: its largest exponent holds
 * numbers up to 448, and only the pattern of all ones is NaN.
 */
#include "matrix.h"

float fp8_to_float(uint8_t bits, bool e5m2)
{
	uint32_t exponent = bits >> 3 & 15, fraction = bits & 7;
	float v;

	if (e5m2)
		return half_to_float((uint16_t)(bits << 8));
	if ((bits & 0x7f) == 0x7f)
		return NAN;
	v = exponent ? ldexpf((float)(8 + fraction), (int)exponent - 10) : ldexpf((float)fraction, -9);
	return bits & 0x80 ? -v : v;
}

uint32_t encode_fp8(long double v, bool e5m2)
{
	uint32_t bits;

	if (e5m2)
		return encode_float(v, 2, 5, ROUND_RN, true);
	if (isnan(v))
		return 0x7f;
	/* with an exponent of five bits and the same subnormal numbers; what is above the largest number is cut off */
	bits = encode_float(ldexpl(v, -8), 3, 5, ROUND_RN, false);
	return (bits & 0xff) > 0x7e || isinf(v) ? (bits >> 1 & 0x80) | 0x7e : (bits >> 1 & 0x80) | (bits & 0x7f);
}
