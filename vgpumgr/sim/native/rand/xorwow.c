/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XORWOW: Marsaglia, Xorshift RNGs (2003), with a counter beside five words. Lanes are 2^67 numbers apart: the words are linear over
 * bits, so that a step is a matrix, and many steps are its power. How a seed becomes a state is as curand_kernel.h has it.
 */
#include <pthread.h>
#include <string.h>

#include "rand.h"

enum { WORDS = 5, BITS = 32 * WORDS, APART = 67, WEYL = 362437 };

/* Column by column: what a bit becomes. */
struct matrix {
	uint32_t columns[BITS][WORDS];
};

static struct matrix one_step, one_lane;

uint32_t rd_xorwow_next(uint32_t s[RD_LANE_WORDS])
{
	uint32_t t = s[0] ^ s[0] >> 2;

	memmove(s, s + 1, (WORDS - 1) * sizeof(*s));
	s[4] = s[3] ^ s[3] << 4 ^ t ^ t << 1;
	s[5] += WEYL;
	return s[4] + s[5];
}

static void apply(const struct matrix *m, uint32_t words[WORDS])
{
	uint32_t sum[WORDS] = { 0 };

	for (int bit = 0; bit < BITS; bit++) {
		uint32_t mask = -(words[bit / 32] >> bit % 32 & 1);

		for (int i = 0; i < WORDS; i++)
			sum[i] ^= m->columns[bit][i] & mask;
	}
	memcpy(words, sum, sizeof(sum));
}

/* a = b a; they may be the same. */
static void multiply(struct matrix *a, const struct matrix *b)
{
	struct matrix left = *b;

	for (int bit = 0; bit < BITS; bit++)
		apply(&left, a->columns[bit]);
}

static void prepare(void)
{
	for (int bit = 0; bit < BITS; bit++) {
		uint32_t s[RD_LANE_WORDS] = { 0 };

		s[bit / 32] = 1u << bit % 32;
		rd_xorwow_next(s);
		memcpy(one_step.columns[bit], s, sizeof(one_step.columns[bit]));
	}
	one_lane = one_step;
	for (int i = 0; i < APART; i++)
		multiply(&one_lane, &one_lane);
}

static void power(struct matrix *out, uint64_t steps)
{
	struct matrix square = one_step;

	memset(out, 0, sizeof(*out));
	for (int bit = 0; bit < BITS; bit++)
		out->columns[bit][bit / 32] = 1u << bit % 32;
	for (; steps; steps >>= 1) {
		if (steps & 1)
			multiply(out, &square);
		multiply(&square, &square);
	}
}

static void from_seed(uint32_t s[RD_LANE_WORDS], uint64_t seed)
{
	uint32_t low = 1099087573u * ((uint32_t)seed ^ 0xaad26b49u), high = 2591861531u * ((uint32_t)(seed >> 32) ^ 0xf7dcefddu);

	s[0] = 123456789u + low;
	s[1] = 362436069u ^ low;
	s[2] = 521288629u + high;
	s[3] = 88675123u ^ high;
	s[4] = 5783321u + low;
	s[5] = 6615241u + high + low;
}

void rd_xorwow_begin(uint32_t (*lanes)[RD_LANE_WORDS], const struct rd_settings *settings, uint64_t skip, uint32_t more)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct matrix skipped;
	uint32_t first[RD_LANE_WORDS];

	pthread_once(&once, prepare);
	power(&skipped, skip);
	from_seed(first, settings->seed);
	for (uint32_t i = 0; i < RD_LANES_XORWOW; i++) {
		/* the guide says no more of this ordering than that each lane's seed is of the program's and its number */
		if (settings->ordering == RD_SEEDED)
			from_seed(first, settings->seed + i);
		memcpy(lanes[i], first, sizeof(first));
		apply(&skipped, lanes[i]);
		lanes[i][5] += (uint32_t)skip * WEYL;
		if (i < more)
			rd_xorwow_next(lanes[i]);
		apply(&one_lane, first); /* the counter is where it was: 2^67 is a multiple of 2^32 */
	}
}
