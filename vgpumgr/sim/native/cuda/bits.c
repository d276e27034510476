/* SPDX-License-Identifier: Apache-2.0 */
/* A set of bits with first-fit search for runs of clear ones. */
#include <errno.h>
#include <stdlib.h>

#include "cuda_sim.h"

int bits_init(struct bits *b, size_t n)
{
	b->words = calloc((n + 63) / 64, sizeof(*b->words));
	b->n = n;
	return b->words ? 0 : -ENOMEM;
}

void bits_deinit(struct bits *b)
{
	free(b->words);
	*b = (struct bits){ 0 };
}

static bool bit(const struct bits *b, size_t i)
{
	return b->words[i / 64] >> (i % 64) & 1;
}

static void set_run(struct bits *b, size_t first, size_t count, bool value)
{
	for (size_t i = first; i < first + count; i++) {
		uint64_t mask = UINT64_C(1) << (i % 64);

		b->words[i / 64] = value ? b->words[i / 64] | mask : b->words[i / 64] & ~mask;
	}
}

size_t bits_take(struct bits *b, size_t count)
{
	size_t run = 0;

	for (size_t i = 0; i < b->n; i++) {
		if (!run && i % 64 == 0 && b->words[i / 64] == UINT64_MAX) {
			i += 63;
			continue;
		}
		run = bit(b, i) ? 0 : run + 1;
		if (run == count) {
			set_run(b, i + 1 - count, count, true);
			return i + 1 - count;
		}
	}
	return SIZE_MAX;
}

void bits_release(struct bits *b, size_t first, size_t count)
{
	set_run(b, first, count, false);
}

bool bits_empty(const struct bits *b)
{
	for (size_t i = 0; i < (b->n + 63) / 64; i++) {
		if (b->words[i])
			return false;
	}
	return true;
}
