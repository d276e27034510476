/* SPDX-License-Identifier: Apache-2.0 */
/* MT19937: Matsumoto, Nishimura, Mersenne Twister (1998), with their initialisation of 2002. One sequence: the genuine library takes turns
 * among parts of it. */
#include "rand.h"

enum { MIDDLE = 397 };

void rd_twister_begin(struct rd_state *state, uint32_t seed)
{
	uint32_t *w = state->twister;

	w[0] = seed;
	for (uint32_t i = 1; i < RD_TWISTER_WORDS; i++)
		w[i] = 1812433253u * (w[i - 1] ^ w[i - 1] >> 30) + i;
	state->used = RD_TWISTER_WORDS;
}

static void twist(uint32_t *w)
{
	for (int i = 0; i < RD_TWISTER_WORDS; i++) {
		uint32_t y = (w[i] & 0x80000000u) | (w[(i + 1) % RD_TWISTER_WORDS] & 0x7fffffffu);

		w[i] = w[(i + MIDDLE) % RD_TWISTER_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
	}
}

uint32_t rd_twister_next(struct rd_state *state)
{
	uint32_t y;

	if (state->used == RD_TWISTER_WORDS) {
		twist(state->twister);
		state->used = 0;
	}
	y = state->twister[state->used++];
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680u;
	y ^= y << 15 & 0xefc60000u;
	return y ^ y >> 18;
}
