/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcurand. A generator is made on the host with one wait; its stream, and what is set of it, are kept here and travel
 * with its next numbers. Those are posted, but for a generator's first ones: for these the library takes memory, and may have none.
 */
#ifndef VGPUMGR_RAND_GUEST_H
#define VGPUMGR_RAND_GUEST_H

#include <pthread.h>

#include "guest_math.h"
#include "rand_exports.h"
#include "rand_wire.h"

enum { RAND_MAGIC = 0x52414e44 };

struct rand_generator {
	uint32_t magic;
	pthread_mutex_t lock;
	uint64_t id;              /* the channel's */
	int type;
	void *stream;
	uint32_t dimensions;
	bool begun;               /* the library has made numbers as it is set to: it has the memory that it needs */
	struct rand_setting settings[RAND_SETTINGS]; /* that the library does not have yet */
};

/* ---- channel.c */
/* What a driver's error is to a caller of the library. */
int rand_status(int result);
int rand_unsupported(const char *name, atomic_flag *told);
bool rand_is_quasi(int type);
/* Of 64 bits, which curandGenerateLongLong is for. */
bool rand_is_wide(int type);
/* Locked; NULL: there is none, or its context has gone. */
struct rand_generator *rand_enter(struct rand_generator *generator);
void rand_leave(struct rand_generator *generator);

/* ---- generate.c */
/* Nothing but what is set: for the library's word on it. */
int rand_settle(struct rand_generator *generator);

#endif
