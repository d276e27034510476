/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcufft. A plan's number, stream, work area and properties are kept here. Making a plan is one question, which has the
 * host's library make its own; an execution is posted with all that was set. A work area that the library would allocate is allocated
 * here, as the program's own memory is.
 */
#ifndef VGPUMGR_FFT_GUEST_H
#define VGPUMGR_FFT_GUEST_H

#include <pthread.h>

#include "exports.h"
#include "fft_wire.h"
#include "guest_math.h"

/* A cufftHandle. */
struct fft_plan {
	pthread_mutex_t lock;
	bool live, made;
	int number, next;         /* next: of those that are free */
	uint64_t handle, id;      /* the channel's: of the library in the plan's context, and of the plan once it is made */
	void *context;            /* CUcontext */
	void *stream;
	bool allocates;
	uint64_t area, own;       /* own: 0, or what was allocated here */
	size_t bytes;
	unsigned int suits;       /* a bit for each fft_execution that is of its type */
	uint64_t kind;            /* a hash of its shape */
	uint64_t set;             /* as in fft_shape */
	int64_t properties[FFT_PROPERTIES];
};

/* ---- plan.c */
/* What a driver's error is to a caller of the library. */
int fft_status(int result);
int fft_unsupported(const char *name, atomic_flag *told);
/* The library in the current context. A cufftResult. */
int fft_open(uint64_t *handle, void **context);
/* A plan with nothing but its context. */
int fft_new(int *number);
/* Locked; NULL: there is none of that number. */
struct fft_plan *fft_find(int number);
/* The same; NULL also where its context has gone. */
struct fft_plan *fft_enter(int number);
void fft_leave(struct fft_plan *plan);
/* Ends it, and leaves it. */
int fft_end(struct fft_plan *plan);
/* In the plan's context. A cufftResult. */
int fft_allocate(struct fft_plan *plan);
/* What was allocated for it. */
void fft_release(struct fft_plan *plan);

/* ---- shape.c: what functions are called with */
struct fft_shape fft_flat(enum fft_way way, const int *n, int type, int batch);
/* False: there is no such rank, or no sizes. */
bool fft_many(struct fft_shape *shape, int rank, const int *n, const int *in, const int *out);
bool fft_many_64(struct fft_shape *shape, int rank, const int64_t *n, const int64_t *in, const int64_t *out);
struct fft_shape fft_typed(enum fft_way way, int type, int64_t batch);
void fft_strides(struct fft_shape *shape, int64_t in_stride, int64_t in_distance, int64_t out_stride, int64_t out_distance);
/* Which executions are of its type. */
unsigned int fft_suits(const struct fft_shape *shape);
uint64_t fft_kind(const struct fft_shape *shape);

#endif
