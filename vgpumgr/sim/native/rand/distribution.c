/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of distributions, as curand_uniform.h and curand_normal.h document them. */
#include <math.h>

#include "rand.h"

#define MRG_NORM 2.3283065498378288e-10      /* MRG32K3A_NORM */
#define MRG_BITS_NORM 1.000000048662          /* MRG32K3A_BITS_NORM */

uint32_t rd_bits(int type, const uint32_t *words)
{
	return type == RD_MRG32K3A ? (uint32_t)(words[0] * MRG_BITS_NORM) : words[0];
}

/* From 0 to 1, without 0 and with 1. */
float rd_uniform(int type, const uint32_t *words)
{
	if (type == RD_MRG32K3A)
		return (float)(words[0] * MRG_NORM);
	return (float)words[0] * 0x1p-32f + 0x1p-33f;
}

double rd_uniform_double(int type, const uint32_t *words)
{
	if (type == RD_MRG32K3A)
		return words[0] * MRG_NORM;
	return (double)(words[0] ^ (uint64_t)words[1] << 21) * 0x1p-53 + 0x1p-54;
}

void rd_normal(int type, const struct rd_unit *unit, double pair[2])
{
	const uint32_t *other = &unit->words[unit->wide ? 2 : 1];
	double u, v, s;

	if (unit->wide) {
		u = rd_uniform_double(type, unit->words);
		v = rd_uniform_double(type, other);
	} else {
		u = (double)rd_uniform(type, unit->words);
		v = (double)rd_uniform(type, other);
	}
	s = sqrt(-2 * log(u));
	pair[0] = s * sin(2 * M_PI * v);
	pair[1] = s * cos(2 * M_PI * v);
}
