/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up guest process: what it has, and frames that it could send, most of them right. */
#ifndef TEST_GUEST_H
#define TEST_GUEST_H

#include "lane.h"
#include "session.h"

enum { KEPT = 24, PAYLOAD = 40960 };

enum field_kind { FIELD_U64, FIELD_U32, FIELD_I32, FIELD_F32, FIELD_BYTES, FIELD_STRING, FIELD_HANDLE, FIELD_MINT };

struct field {
	const char *name;
	enum field_kind kind;
	enum wk_kind handle;
	uint32_t cap;
};

enum { GUEST_UNIT = 2 << 20, GUEST_UNITS = 6 };

struct operation {
	const char *name;
	uint32_t id;
	bool in_context;
	unsigned int count;
	struct field fields[32];
};

struct guest {
	struct vg_lane lane;
	struct wk_session *session;
	uint64_t random;
	uint32_t sequence, upload, generation;
	uint32_t slots[WK_TABLES];                /* used so far */
	uint64_t handles[WK_TABLES][KEPT];
	uint64_t usual[WK_TABLES];                /* much is done to one, so that it comes to something */
	struct { uint64_t stream, context; } newest;
	uint64_t made[WK_TABLES];                 /* the newest handle of each kind */
	struct { uint64_t address, context; } memories[KEPT];
	uint64_t conditions[4];                   /* conditional handles, the newest of them */
	uint64_t space, gates;                    /* the newest of reserved addresses, GUEST_UNITS units */
	/* the frame being made */
	uint8_t payload[PAYLOAD];
	size_t length, bulk, inputs;              /* bytes of two inputs to link; 0: an image is to be loaded */
	uint64_t unit, near;                      /* where mappings are wanted */
	uint64_t context, width, height;
	unsigned int how;                         /* 1: a node is to be added, 2: the first one changed, 3: in an executable graph */
	struct { uint64_t how, rank; } tensor;    /* whose descriptor is asked for */
	bool known;                               /* the names asked for are there */
	bool spoil;                               /* now and then a violation is wanted */
};

uint64_t guest_roll(struct guest *g);
/* True once in n. */
static inline bool guest_once_in(struct guest *g, uint64_t n)
{
	return guest_roll(g) % n == 0;
}
void guest_make(struct guest *g, const struct operation *o);
/* For lane.learn: what an answer says of memory. */
void guest_learn(struct vg_lane *lane, const struct lane_call *call, int32_t status, const void *data, size_t length);

#endif
