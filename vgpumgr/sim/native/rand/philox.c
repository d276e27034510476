/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). */
#include "rand.h"

enum { ROUNDS = 10 };

void rd_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t left = (uint64_t)0xd2511f53 * c0, right = (uint64_t)0xcd9e8d57 * c2;

		c0 = (uint32_t)(right >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(left >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)right;
		c3 = (uint32_t)left;
		k0 += 0x9e3779b9;
		k1 += 0xbb67ae85;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* A lane makes four numbers at once, from one block, or from two where they have twice the bits. */
void rd_philox_words(uint64_t seed, uint64_t place, bool wide, uint32_t *words)
{
	uint64_t group = place / 4, lane = group % RD_LANES_PHILOX, block = group / RD_LANES_PHILOX;
	uint32_t key[] = { (uint32_t)seed, (uint32_t)(seed >> 32) }, counter[4], out[4];

	if (wide)
		block = 2 * block + place % 4 / 2;
	counter[0] = (uint32_t)block;
	counter[1] = (uint32_t)(block >> 32);
	counter[2] = (uint32_t)lane;
	counter[3] = 0;
	rd_philox(counter, key, out);
	words[0] = out[wide ? place % 2 * 2 : place % 4];
	if (wide)
		words[1] = out[place % 2 * 2 + 1];
}
