/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before every file of a program (-include): before each access to shared memory, the other side may change it.
 * What the program under test fetches twice is then two values, at a place that an input decides.
 */
#ifndef TEST_RACE_H
#define TEST_RACE_H

#include "../../vgpumgr/virtio/native/transport/access.h"

/* The program's: whoever shares the memory has its turn. */
void race(void);

static inline uint32_t race_load32(const vg_word32 *word)
{
	race();
	return vg_load32(word);
}

static inline uint64_t race_load64(const vg_word64 *word)
{
	race();
	return vg_load64(word);
}

static inline void race_fetch(void *to, const void *shared, size_t size)
{
	for (size_t at = 0; at < size; at += 8) {
		race();
		vg_fetch((uint8_t *)to + at, (const uint8_t *)shared + at, 8);
	}
}

static inline void race_copy_in(void *to, const void *shared, size_t size)
{
	race();
	vg_copy_in(to, shared, size / 2);
	race();
	vg_copy_in((uint8_t *)to + size / 2, (const uint8_t *)shared + size / 2, size - size / 2);
}

#define vg_load32 race_load32
#define vg_load64 race_load64
#define vg_fetch race_fetch
#define vg_copy_in race_copy_in

#endif
