/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MRG32k3a: L'Ecuyer, Good parameters and implementations for combined multiple recursive random number generators (1999). Lanes are
 * 2^76 numbers apart. How a seed becomes a state is as curand_kernel.h has it.
 */
#include <string.h>

#include "rand.h"

#define FIRST 4294967087ull
#define SECOND 4294944443ull

enum { APART = 76, ORDER = 3 };

/* Of both recursions. */
struct matrices {
	uint64_t of[2][ORDER][ORDER];
};

static const uint64_t moduli[2] = { FIRST, SECOND };
static const struct matrices one_step = { { { { 0, 1, 0 }, { 0, 0, 1 }, { FIRST - 810728, 1403580, 0 } },
					    { { 0, 1, 0 }, { 0, 0, 1 }, { SECOND - 1370589, 0, 527612 } } } };

static void multiply(struct matrices *out, const struct matrices *a, const struct matrices *b)
{
	struct matrices product;

	for (int m = 0; m < 2; m++)
		for (int i = 0; i < ORDER; i++)
			for (int j = 0; j < ORDER; j++) {
				uint64_t sum = 0;

				for (int k = 0; k < ORDER; k++)
					sum = (sum + a->of[m][i][k] * b->of[m][k][j] % moduli[m]) % moduli[m];
				product.of[m][i][j] = sum;
			}
	*out = product;
}

static void apply(const struct matrices *a, uint32_t s[RD_LANE_WORDS])
{
	uint32_t next[RD_LANE_WORDS];

	for (int m = 0; m < 2; m++)
		for (int i = 0; i < ORDER; i++) {
			uint64_t sum = 0;

			for (int k = 0; k < ORDER; k++)
				sum = (sum + a->of[m][i][k] * s[ORDER * m + k] % moduli[m]) % moduli[m];
			next[ORDER * m + i] = (uint32_t)sum;
		}
	memcpy(s, next, sizeof(next));
}

static struct matrices power(uint64_t steps)
{
	struct matrices out = { { { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } }, { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } } } };
	struct matrices square = one_step;

	for (; steps; steps >>= 1) {
		if (steps & 1)
			multiply(&out, &out, &square);
		multiply(&square, &square, &square);
	}
	return out;
}

/* From 1 to the first modulus. */
uint32_t rd_mrg_next(uint32_t s[RD_LANE_WORDS])
{
	uint64_t first = (1403580ull * s[1] + (FIRST - 810728) * s[0]) % FIRST;
	uint64_t second = (527612ull * s[5] % SECOND + (SECOND - 1370589) * s[3] % SECOND) % SECOND;

	memmove(s, s + 1, 2 * sizeof(*s));
	memmove(s + ORDER, s + ORDER + 1, 2 * sizeof(*s));
	s[2] = (uint32_t)first;
	s[5] = (uint32_t)second;
	return (uint32_t)(first > second ? first - second : first + FIRST - second);
}

static void from_seed(uint32_t s[RD_LANE_WORDS], uint64_t seed)
{
	uint64_t factors[] = { (uint32_t)seed ^ 0x55555555u, (uint32_t)(seed >> 32) ^ 0xaaaaaaaau };

	for (int i = 0; i < RD_LANE_WORDS; i++) {
		s[i] = 12345;
		if (seed)
			s[i] = (uint32_t)(factors[i % 2] * s[i] % moduli[i / ORDER]);
	}
}

void rd_mrg_begin(uint32_t (*lanes)[RD_LANE_WORDS], uint32_t count, uint64_t seed, uint64_t skip, uint32_t more)
{
	struct matrices skipped = power(skip), lane = one_step;
	uint32_t first[RD_LANE_WORDS];

	for (int i = 0; i < APART; i++)
		multiply(&lane, &lane, &lane);
	from_seed(first, seed);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(lanes[i], first, sizeof(first));
		apply(&skipped, lanes[i]);
		if (i < more)
			rd_mrg_next(lanes[i]);
		apply(&lane, first);
	}
}
