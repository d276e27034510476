/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker's calls need of the transport, for programs that are both ends: answers are checked and kept. */
#ifndef TEST_LANE_H
#define TEST_LANE_H

#include <pthread.h>
#include <transport.h>

enum { LANE_SLOTS = 64, LANE_BULK = 4096, LANE_DATA = 64 };

struct lane_call {
	bool waits;
	uint32_t sequence, op;
	uint64_t context;        /* of the request, for who learns from the answer */
	uint8_t bulk[LANE_BULK];
};

struct vg_lane {
	pthread_mutex_t lock;
	struct lane_call calls[LANE_SLOTS];
	_Atomic unsigned int waiting;
	unsigned long asked, answered;
	/* Under the lock: the first bytes of the answer to a call. */
	void (*learn)(struct vg_lane *lane, const struct lane_call *call, int32_t status, const void *data,
		      size_t length);
	void *guest;
};

/* A free place for a call that waits, or NULL. */
struct lane_call *lane_ask(struct vg_lane *lane, uint32_t sequence, uint32_t op);
/* The call was refused: there will be no answer. */
void lane_refused(struct vg_lane *lane, uint32_t sequence);

#endif
