/* SPDX-License-Identifier: Apache-2.0 */
/* What the test worker understands. */
#ifndef VG_TEST_ECHO_H
#define VG_TEST_ECHO_H

#include <stdint.h>
#include <transport.h>

enum echo_op {
	ECHO_ECHO = 1,   /* the payload comes back */
	ECHO_COUNT,      /* u64, must be one more than the last; posted */
	ECHO_QUERY,      /* u64: the last of them */
	ECHO_BULK_IN,    /* u64 seed: checks the bulk against its pattern */
	ECHO_BULK_OUT,   /* u64 seed: fills the bulk */
	ECHO_HOLD,       /* is answered after the next ECHO_RELEASE */
	ECHO_RELEASE,    /* status: whether a call was held */
	ECHO_BLOCK,      /* is never answered; the call lasts until the lane closes */
	ECHO_REFUSE,     /* a violation */
	ECHO_CRASH,      /* the session dies */
	ECHO_NULL,       /* nothing */
	ECHO_STORE,      /* u64 offset: bulk into the "device" */
	ECHO_LOAD,       /* u64 offset: bulk from it */
	ECHO_ACCOUNT,    /* u64: memory held */
	ECHO_LARGE,      /* answers with the largest data there is */
	ECHO_SHOUT,      /* the session dies with many words */
	ECHO_FORGE,      /* the session dies, and the name in its numbers has no end */
};

enum { ECHO_DEVICE = 16 << 20 };

static inline void echo_hash(uint8_t hash[VG_HASH_SIZE], int version)
{
	for (int i = 0; i < VG_HASH_SIZE; i++)
		hash[i] = (uint8_t)(version * 16 + i);
}

static inline uint8_t echo_pattern(uint64_t seed, uint64_t at)
{
	return (uint8_t)((seed + at) * 2654435761u >> 13);
}

#endif
