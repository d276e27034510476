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

struct operation {
	const char *name;
	uint32_t id;
	bool in_context;
	unsigned int count;
	struct field fields[12];
};

struct guest {
	struct vg_lane lane;
	struct wk_session *session;
	uint64_t random;
	uint32_t sequence, upload, generation;
	uint32_t slots[WK_TABLES];                /* used so far */
	uint64_t handles[WK_TABLES][KEPT];
	struct { uint64_t address, context; } memories[KEPT];
	uint64_t gates;
	/* the frame being made */
	uint8_t payload[PAYLOAD];
	size_t length, bulk;
	uint64_t context, width, height;
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
