/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcublas and libcublasLt: handles and descriptors are kept here, work is posted to the host's library on the
 * handle's stream, and waits for nothing. The first call of its kind (function, sizes, types, alignment) waits for what the
 * library says of it, so that a program gets the library's own errors.
 */
#ifndef VGPUMGR_BLAS_GUEST_H
#define VGPUMGR_BLAS_GUEST_H

#include <pthread.h>

#include "blas_functions.h"
#include "guest_math.h"
#include "vg_blas.h"

#define BLAS_API __attribute__((visibility("default")))

/* cublasStatus_t */
enum { BLAS_OK = 0, BLAS_NOT_INITIALIZED = 1, BLAS_ALLOC_FAILED = 3, BLAS_INVALID_VALUE = 7, BLAS_ARCH_MISMATCH = 8,
       BLAS_MAPPING_ERROR = 11, BLAS_EXECUTION_FAILED = 13, BLAS_INTERNAL_ERROR = 14, BLAS_NOT_SUPPORTED = 15,
       BLAS_LICENSE_ERROR = 16 };

#define BLAS_MAGIC 0x7667626c61730001 /* of a handle: "vgblas" */

/* What the library is set to. */
struct blas_state {
	void *stream;
	int math, atomics, processors;
	void *workspace;          /* NULL: the library's own */
	size_t workspace_bytes;
};

/* A cublasHandle_t and a cublasLtHandle_t; both libraries know it. */
struct blas_handle {
	uint64_t magic;
	uint64_t id;              /* the channel's */
	uint32_t library;
	pthread_mutex_t lock;
	int mode;                 /* cublasPointerMode_t */
	struct blas_state wanted, sent;
	bool anew;                /* its stream has been set since the last call */
	struct math_known known;
};

/* ---- channel.c */
/* What a driver's error is to a caller of the library. */
int blas_status(int result);
/* BLAS_NOT_SUPPORTED; says the name the first time. */
int blas_unsupported(const char *name, atomic_flag *told);

/* NULL: it is none, or its context has gone. */
struct blas_handle *blas_handle(void *handle);

int blas_create(uint32_t library, void **handle);
int blas_destroy(void *handle);

/* ---- call.c */
/* Calls `f` with the words of its arguments. */
int blas_call(void *handle, const struct blas_function *f, const uint64_t *words);
/* Under the handle's lock. Waits for the library's status where the kind, whose hash is given, is new. */
int blas_send(struct blas_handle *h, struct math_request *request, uint64_t kind);
/* Under the lock: what numbers the handle has been set to; the library may refuse one. */
int blas_send_numbers(struct blas_handle *h);

#endif
