/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcusolver. Handles are the host's; what handles, parameters and objects are set to is kept here and travels with
 * the calls that it is for. Work is posted on the handle's stream and waits for nothing but the library's word on a new kind of
 * it; sizes of work areas are asked once for each question. Work areas on the device are the program's own memory.
 */
#ifndef VGPUMGR_SOLVER_GUEST_H
#define VGPUMGR_SOLVER_GUEST_H

#include <pthread.h>

#include "blas_functions.h"
#include "guest_math.h"
#include "vg_solver.h"

#define SOLVER_API __attribute__((visibility("default")))

/* cusolverStatus_t */
enum { SOLVER_OK = 0, SOLVER_NOT_INITIALIZED = 1, SOLVER_ALLOC_FAILED = 2, SOLVER_INVALID_VALUE = 3, SOLVER_EXECUTION_FAILED = 6,
       SOLVER_INTERNAL_ERROR = 7, SOLVER_NOT_SUPPORTED = 9 };

/* cusolverDeterministicMode_t */
enum { SOLVER_DETERMINISTIC = 1, SOLVER_NOT_DETERMINISTIC = 2 };

#define SOLVER_HANDLE 0x76677364686e6401
#define SOLVER_PARAMETERS 0x7667736470617201

/* A cusolverDnHandle_t. */
struct solver_handle {
	uint64_t magic;
	uint64_t id;              /* the channel's */
	pthread_mutex_t lock;
	void *stream;
	int mode, sent_mode;      /* cusolverDeterministicMode_t */
	struct math_known known;
};

/* A syevjInfo_t or gesvdjInfo_t; an argument of a call is its address, so that what it is set to comes first. */
struct solver_object {
	struct solver_settings settings;
	uint64_t kind;            /* SOLVER_SYEVJ, SOLVER_GESVDJ, with a mark above it */
	uint64_t id, owner;       /* the channel's, of the host's object and of the handle that it was made with; 0: none yet */
	pthread_mutex_t lock;     /* for a whole call: the next that has it as an argument waits here, never on the host */
};

/* A cusolverDnParams_t. */
struct solver_params {
	uint64_t magic, word;
};

/* ---- channel.c */
int solver_status(int result);
int solver_unsupported(const char *name, atomic_flag *told);
/* NULL: it is none, or its context has gone. */
struct solver_handle *solver_handle(void *handle);

/* ---- objects.c */
/* NULL: it is none of that kind. */
struct solver_object *solver_object(void *object, uint64_t kind);
/* False: it is no cusolverDnParams_t. The word that travels; 0 for a null pointer. */
bool solver_read_params(const void *params, uint64_t *word);
/* Under its lock: the host's object of it, for calls with that handle. A cusolverStatus_t. */
int solver_find_object(struct solver_handle *h, struct solver_object *o);
/* What is kept for others ends with the handle. */
void solver_forget_objects(uint64_t owner);

/* ---- call.c: a function with the words of its arguments; the answer of the second kind is known once it was asked */
int solver_call(void *handle, const struct blas_function *f, const uint64_t *words);
int solver_ask(void *handle, const struct blas_function *f, const uint64_t *words);

#endif
