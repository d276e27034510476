/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest's libraries of mathematics ask of its libcuda.so.1, which has the channel. Found by dlsym(). */
#ifndef VG_MATH_CHANNEL_H
#define VG_MATH_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Libraries of math_open. */
enum { VG_MATH_BLAS = 1, VG_MATH_LT = 2, VG_MATH_DNN = 3, VG_MATH_FFT = 4, VG_MATH_SOLVER = 5, VG_MATH_SPARSE = 6, VG_MATH_RAND = 7 };

/* How a function is called. MATH_ANEW: the stream has been set, which takes the library's own workspace again. */
enum { MATH_ON_DEVICE = 1, MATH_ANEW = 2 };
enum math_wait { MATH_POST, MATH_TRY, MATH_ASK };

struct math_library {
	uint64_t version;
	char path[256];           /* of the host's library */
};

struct math_request {
	uint64_t handle;
	void *stream;             /* CUstream */
	uint64_t function;
	uint32_t mode;
	enum math_wait wait;      /* for nothing, for its status, or for what it gives back */
	const void *arguments;
	size_t length;
	void *values;             /* what it gives back */
	size_t room, filled;
	int status;               /* cublasStatus_t, cudnnStatus_t, cufftResult, cusolverStatus_t, cusparseStatus_t, curandStatus_t; 0 of a posted call */
	const char *name;         /* what the program has called, for VGPUMGR_TRACE; NULL: it is not known */
};

/* A CUresult: 801 where the host has no such library, or the worker knows nothing of them. */
typedef int math_open_fn(uint32_t library, struct math_library *out);
/* In the current context. *status: the library's. */
typedef int math_create_fn(uint32_t library, uint64_t *handle, int *status);
typedef int math_destroy_fn(uint64_t handle);
typedef int math_call_fn(struct math_request *request);
/* An object that is kept, beside the request's handle and in its context; it ends with math_destroy, with its context, or, but for
 * cuSOLVER's and cuSPARSE's, with that handle. */
typedef int math_make_fn(struct math_request *request, uint64_t *made);
/* Whether the handle, and the context that it was made in, are there still. */
typedef bool math_alive_fn(uint64_t handle);

#endif
