/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcusparse. Handles are the host's; descriptors are kept here, and all that they have travels with the calls that
 * they are for. Work is posted on the handle's stream and waits for nothing but the library's word on a new kind of it; sizes of
 * work areas are asked once for each question. What the library keeps from one call to the next is an object of the session's.
 */
#ifndef VGPUMGR_SPARSE_GUEST_H
#define VGPUMGR_SPARSE_GUEST_H

#include <pthread.h>

#include "blas_functions.h"
#include "descriptors.h"
#include "guest_math.h"
#include "vg_sparse.h"

#define SPARSE_HANDLE 0x76677370686e6401

/* A cusparseHandle_t. */
struct sparse_handle {
	uint64_t magic;
	uint64_t id;              /* the channel's */
	pthread_mutex_t lock;
	void *stream;
	int mode;                 /* cusparsePointerMode_t */
	struct math_known known;
};

/* A cusparseSpGEMMDescr_t, cusparseSpSVDescr_t, cusparseSpSMDescr_t, bsrsv2Info_t or bsrsm2Info_t. */
struct sparse_object {
	uint64_t kind;            /* SPARSE_SPGEMM and so on, with a mark above it */
	pthread_mutex_t lock;     /* for a whole call: the next that has it as an argument waits here, never on the host */
	uint64_t id;              /* the channel's; 0: the host has none yet */
	uint64_t keeps;           /* the kind of the call that prepared it last; 0: none did, or it failed */
};

/* ---- channel.c */
int sparse_status(int result);
int sparse_unsupported(const char *name, atomic_flag *told);
/* NULL: it is none, or its context has gone. */
struct sparse_handle *sparse_handle(void *handle);

/* ---- objects.c */
/* NULL: it is none of that kind. */
struct sparse_object *sparse_object(const void *object, uint64_t kind);
/* Under its lock: there is one of the host's, made in the handle's context. A cusparseStatus_t. */
int sparse_find_object(struct sparse_handle *h, struct sparse_object *o);

/* ---- call.c: a function with the words of its arguments; an answer of the second kind is known once it was asked, one of the
 * third is asked each time */
int sparse_call(void *handle, const struct blas_function *f, const uint64_t *words);
int sparse_ask(void *handle, const struct blas_function *f, const uint64_t *words);
int sparse_wait(void *handle, const struct blas_function *f, const uint64_t *words);

#endif
