/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's libraries of mathematics have in common: the way to the host, and which kinds of calls it is known to do. */
#ifndef VGPUMGR_GUEST_MATH_H
#define VGPUMGR_GUEST_MATH_H

#include <math_channel.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- channel.c */
struct math_channel {
	math_open_fn *open;
	math_create_fn *create;
	math_destroy_fn *destroy;
	math_call_fn *call;
	math_make_fn *make;       /* NULL: libcuda.so.1 is older */
	math_alive_fn *alive;
	int (*unsupported)(const char *name, atomic_flag *told);
	int (*pointer_attribute)(void *data, int attribute, uint64_t address);
	int (*current)(void **context);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*allocate)(uint64_t *address, size_t bytes);
	int (*release)(uint64_t address);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes);
	int (*copy_async)(uint64_t to, uint64_t from, size_t bytes, void *stream);
	int (*copy_2d)(const void *shape);
	int (*copy_2d_async)(const void *shape, void *stream);
};
/* NULL: this process has no libcuda.so.1 of a forwarded GPU. */
const struct math_channel *math_channel(void);
/* A program of the runtime's has no context before its first call, and the runtime knows which device it wants. */
void math_ask_runtime(void);
/* Says the first time that the name is not supported. */
void math_refuse(const char *name, atomic_flag *told);
/* Of the host's library; 0 where it has none. */
uint64_t math_version(uint32_t library);

/* ---- places.c: a library without handles, in each context that it is used in */
struct math_place;
struct math_places {
	pthread_mutex_t lock;
	struct math_place *first;
};
#define MATH_PLACES { .lock = PTHREAD_MUTEX_INITIALIZER }

/* Its handle in the current context, which is made where there is none. A CUresult, 801 where the host has no such library; and *status,
 * where that is 0. context, unless it is NULL: that context. */
int math_enter(struct math_places *places, uint32_t library, uint64_t *handle, void **context, int *status);

/* ---- known.c */
enum { MATH_KNOWN = 4096 };

/* Kinds of calls that the library does, by hash; 0: none. */
struct math_known {
	uint64_t at[MATH_KNOWN];
	unsigned int count;
};

/* A hash of what decides whether the library does something. */
uint64_t math_hash(uint64_t hash, uint64_t word);
/* Waits for the library's status where the kind is new. A CUresult; under the lock of what is known. */
int math_send(struct math_known *known, struct math_request *request, uint64_t kind);

/* ---- answers.c: by two hashes of the question, so that a wrong answer for another one is out of the question */
enum { MATH_ANSWERS = 1024 };

/* False: it is to be asked. */
bool math_recall(uint64_t hash, uint64_t check, uint8_t *bytes, size_t *length);
void math_keep(uint64_t hash, uint64_t check, const uint8_t *bytes, size_t length);

#endif
