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
	ECHO_OPS,
	ECHO_NEW = ECHO_OPS, /* of interface 2 only: nothing */
};

enum { ECHO_DEVICE = 16 << 20 };

/* Whether an operation is in interface 1 and 2 alike: 2 has another ECHO_BULK_IN, no ECHO_ACCOUNT, and ECHO_NEW. */
static inline int echo_is_common(uint32_t op)
{
	return op != ECHO_BULK_IN && op != ECHO_ACCOUNT && op != ECHO_NEW;
}

/* The interface of that version. Others than 1 and 2 are those of strangers: no operation is as ours. */
static inline const struct vg_interface *echo_interface(int version)
{
	static uint64_t words[ECHO_NEW];
	static struct vg_interface interface;
	uint32_t count = 0;

	for (uint32_t op = 1; op <= ECHO_NEW; op++)
		if (op != (version == 2 ? ECHO_ACCOUNT : ECHO_NEW))
			words[count++] = (uint64_t)op << VG_ID_SHIFT | op * 0x1234567u |
					 (uint64_t)(version > 2 || (version == 2 && op == ECHO_BULK_IN) ? version : 0) << 40;
	interface = (struct vg_interface){ .words = words, .count = count };
	for (int i = 0; i < VG_HASH_SIZE; i++)
		interface.hash[i] = (uint8_t)(version * 16 + i);
	return &interface;
}

static inline uint8_t echo_pattern(uint64_t seed, uint64_t at)
{
	return (uint8_t)((seed + at) * 2654435761u >> 13);
}

#endif
