/* SPDX-License-Identifier: Apache-2.0 */
/* The host's mathematics libraries, which sessions call for the guest's: docs/wire-format.md. */
#ifndef VG_MATHEMATICS_H
#define VG_MATHEMATICS_H

#include <pthread.h>

#include "vg_worker.h"

/* A worker's option: directories in which the libraries are looked for, before the loader's, with ':' between them. */
#define VG_OPTION_MATH "--math="

/* As cublasStatus_t. */
enum { MATH_OK = 0, MATH_NOT_INITIALIZED = 1, MATH_ALLOC_FAILED = 3, MATH_INVALID_VALUE = 7, MATH_EXECUTION_FAILED = 13,
       MATH_NOT_SUPPORTED = 15 };

/* As cusolverStatus_t. */
enum { SOLVER_ALLOC_FAILED = 2, SOLVER_INVALID_VALUE = 3, SOLVER_NOT_SUPPORTED = 9 };

/* A wk_math that is an execution plan of cuDNN's, a plan of cuFFT's, an object of cuSOLVER's or cuSPARSE's, or a generator of cuRAND's: no library of
 * math_open. */
enum { MATH_DNN_PLAN = 0x100, MATH_FFT_PLAN = 0x101, MATH_SYEVJ = 0x102, MATH_GESVDJ = 0x103, MATH_SPGEMM = 0x104,
       MATH_SPSV = 0x105, MATH_SPSM = 0x106, MATH_BSRSV2 = 0x107, MATH_BSRSM2 = 0x108,
       MATH_RAND_GENERATOR = 0x109 };

/* What cuBLAS takes for a handle's workspace at most, as documented (cublasSetWorkspace). */
#define MATH_HANDLE_BYTES (32ull << 20)

/* What handles of cuDNN, cuSOLVER and cuSPARSE, and what is made with them and of cuFFT, are counted as: what they take is not documented. */
#define MATH_PLAN_BYTES (1ull << 20)

struct wk_math {
	uint32_t library;
	void *handle;             /* cublasHandle_t, cublasLtHandle_t, cudnnHandle_t, cusolverDnHandle_t, cusparseHandle_t; none of cuFFT and cuRAND, whose plans and generators are all there is */
	int (*destroy)(void *handle);
	void *lt;                 /* a cublasHandle_t is a cublasLtHandle_t, too: this one, when it is needed */
	pthread_mutex_t lock;     /* what is set, until the call that it is set for has been made */
	CUstream stream;
	bool on_device, settled;  /* settled: the library has the stream */
	void *params;             /* of cuSOLVER: a cusolverDnParams_t, what ends it, and the word that says what it is set to */
	int (*end_params)(void *params);
	uint64_t params_word;
};

/* A call, decoded. */
struct math_call {
	struct wk_math *math;
	uint32_t library;         /* math's, which may have ended when the call has */
	struct wk_math *plan;     /* of cuDNN, to be executed; of cuSOLVER and cuSPARSE an object that is an argument */
	CUstream stream;
	uint64_t function;
	bool on_device, anew;     /* anew: the stream is to be set though it may be the same, see MATH_ANEW */
	const uint8_t *arguments;
	size_t length;
	uint8_t *values;          /* what it gives back */
	size_t room, filled;
};

/* ---- libraries.c */
void wk_math_read(int argc, char **argv);
/* Loads a library once; its function, or NULL. */
void *wk_math_find(uint32_t library, const char *name);
/* The same; the name, a literal, is looked up once. */
void *wk_math_function(uint32_t library, const char *name);
/* Whether one is loaded: then graphs may have host functions that are neither the guest's nor ours. */
bool wk_math_loaded(void);
/* Loads one; false: the host has none. */
bool wk_math_load(uint32_t library);
/* Of a loaded one: where it was found, and its version. */
const char *wk_math_path(uint32_t library);
uint64_t wk_math_version(uint32_t library);
/* A handle in the context that is current; NULL: the library's status. */
struct wk_math *wk_math_new(uint32_t library, int *status);
void wk_math_end(struct wk_math *math);
/* ---- blas.c (cuSOLVER and cuSPARSE, too), lt.c, dnn.c: what the library answers, or what is wrong with the call. */
int wk_blas_call(struct math_call *call);
int wk_lt_call(struct math_call *call);
int wk_dnn_call(struct math_call *call);
/* An execution plan; NULL: the library's status. */
struct wk_math *wk_dnn_plan(struct math_call *call, int *status);
/* ---- fft.c: of cuFFT's handle, and of one of its plans */
int wk_fft_call(struct math_call *call);
int wk_fft_execute(struct math_call *call);
/* A plan; NULL: the library's status. */
struct wk_math *wk_fft_plan(struct math_call *call, int *status);
/* ---- rand.c: of one of cuRAND's generators */
int wk_rand_generate(struct math_call *call);
/* One; NULL: the library's status. */
struct wk_math *wk_rand_generator(struct math_call *call, int *status);
/* What one of that call is counted as. */
uint64_t wk_rand_bytes(const struct math_call *call);
/* The place of the argument that is an object; negative: the function has none, or there is no such function. */
int wk_blas_object(uint32_t library, uint64_t function);
/* Whether it tells a work area's size, for which the library uses no stream. */
bool wk_blas_measures(uint32_t library, uint64_t function);
/* ---- solver.c: what of a call is no plain argument is found in its words. *scratch: to be freed when it has been made */
struct blas_function;
int wk_solver_begin(struct math_call *call, const struct blas_function *f, uint64_t *words, void **scratch);
/* An object; NULL: the library's status. */
struct wk_math *wk_solver_object(struct math_call *call, int *status);
/* Whether it has a work area on the host, which ends with the call. */
bool wk_solver_lends(const struct math_call *call);
/* ---- sparse.c: the same; the descriptors of a call, which end with it */
enum { SPARSE_LENT = 8 };
struct sparse_lent {
	unsigned int count;
	struct {
		void *descriptor;
		int (*end)(void *descriptor);
	} at[SPARSE_LENT];
	void *made;               /* a matrix whose entries the call counts, and where it stands in the words */
	unsigned int made_place;
};
int wk_sparse_begin(struct math_call *call, const struct blas_function *f, uint64_t *words, struct sparse_lent *lent);
/* When the call has been made: what it counted goes into *matrix, which came with it. */
int wk_sparse_finish(struct math_call *call, struct sparse_lent *lent, void *matrix, int status);
struct wk_math *wk_sparse_object(struct math_call *call, int *status);

#endif
