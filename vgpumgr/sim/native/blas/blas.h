/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuBLAS and cuBLASLt, inside: constants of their interfaces, elements of all data types, and work on streams.
 *
 * A function checks its arguments, copies them into a piece of work and posts that on its stream (work.c). The work runs on
 * a thread of the library (runner.c) while the stream waits. It asks for each operand whether the memory is there: if not,
 * the kernel that follows it on the stream touches the missing address, so the context fails as it does on a GPU.
 */
#ifndef VGPUMGR_SIM_BLAS_H
#define VGPUMGR_SIM_BLAS_H

#include <complex.h>
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BL_EXPORT __attribute__((visibility("default")))

/* cublasStatus_t */
enum {
	BL_SUCCESS = 0,
	BL_NOT_INITIALIZED = 1,
	BL_ALLOC_FAILED = 3,
	BL_INVALID_VALUE = 7,
	BL_ARCH_MISMATCH = 8,
	BL_MAPPING_ERROR = 11,
	BL_EXECUTION_FAILED = 13,
	BL_INTERNAL_ERROR = 14,
	BL_NOT_SUPPORTED = 15,
	BL_LICENSE_ERROR = 16,
};

/* cudaDataType_t */
enum {
	BL_R_32F = 0,
	BL_R_64F = 1,
	BL_R_16F = 2,
	BL_R_8I = 3,
	BL_C_32F = 4,
	BL_C_64F = 5,
	BL_C_16F = 6,
	BL_C_8I = 7,
	BL_R_8U = 8,
	BL_R_32I = 10,
	BL_R_16BF = 14,
	BL_C_16BF = 15,
	BL_TYPES = 16,
};

/* cublasComputeType_t */
enum {
	BL_COMPUTE_16F = 64,
	BL_COMPUTE_16F_PEDANTIC = 65,
	BL_COMPUTE_32F = 68,
	BL_COMPUTE_32F_PEDANTIC = 69,
	BL_COMPUTE_64F = 70,
	BL_COMPUTE_64F_PEDANTIC = 71,
	BL_COMPUTE_32I = 72,
	BL_COMPUTE_32I_PEDANTIC = 73,
	BL_COMPUTE_32F_FAST_16F = 74,
	BL_COMPUTE_32F_FAST_16BF = 75,
	BL_COMPUTE_32F_FAST_TF32 = 77,
	BL_COMPUTE_32F_EMULATED = 78,
	BL_COMPUTE_64F_EMULATED = 79,
};

enum { BL_OP_N = 0, BL_OP_T = 1, BL_OP_C = 2 };
enum { BL_FILL_LOWER = 0, BL_FILL_UPPER = 1 };
enum { BL_POINTER_HOST = 0, BL_POINTER_DEVICE = 1 };

/* element.c */
/* Bytes of an element; 0 for a type that is not simulated. */
size_t bl_size(int type);
bool bl_is_complex(int type);
/* The type in which elements of this one are computed: R_32F, R_64F, C_32F or C_64F. */
int bl_base(int type);
double complex bl_load(const void *array, int type, int64_t i);
void bl_store(void *array, int type, int64_t i, double complex value);
/* Copies a matrix from one type and leading dimension to others. */
void bl_convert(void *to, int to_type, int64_t to_ld, const void *from, int from_type, int64_t from_ld, int64_t rows,
		int64_t cols);

/* factor.c: LU of m by n without exchanges, where a caller has no place for them. Answers as getrf does: the first zero on the
 * diagonal, or 0. */
int bl_factor_plain(void *a, int type, int64_t m, int64_t n, int64_t ld);

/* openblas.c: a routine by its name with the underscore; NULL: OpenBLAS is not installed or lacks it. */
void *bl_routine(const char *name);
/* The same for the first letter of a base type: 's', 'd', 'c', 'z'. */
void *bl_typed_routine(int base, const char *name);

/* driver.c: the process's CUDA driver */
struct bl_driver {
	CUresult (*cuInit)(unsigned);
	CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
	CUresult (*cuCtxGetCurrent)(CUcontext *);
	CUresult (*cuCtxSetCurrent)(CUcontext);
	CUresult (*cuCtxGetId)(CUcontext, unsigned long long *);
	CUresult (*cuCtxSynchronize)(void);
	CUresult (*cuModuleLoadData)(CUmodule *, const void *);
	CUresult (*cuModuleGetFunction)(CUfunction *, CUmodule, const char *);
	CUresult (*cuMemAlloc_v2)(CUdeviceptr *, size_t);
	CUresult (*cuMemFree_v2)(CUdeviceptr);
	CUresult (*cuMemHostAlloc)(void **, size_t, unsigned);
	CUresult (*cuMemGetAddressRange_v2)(CUdeviceptr *, size_t *, CUdeviceptr);
	CUresult (*cuStreamSynchronize)(CUstream);
	CUresult (*cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *);
	CUresult (*cuStreamGetCaptureInfo_v2)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
					      size_t *);
	CUresult (*cuLaunchHostFunc)(CUstream, CUhostFn, void *);
	CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
				   void **, void **);
	CUresult (*cuUserObjectCreate)(CUuserObject *, void *, CUhostFn, unsigned, unsigned);
	CUresult (*cuGraphRetainUserObject)(CUgraph, CUuserObject, unsigned, unsigned);
};
extern struct bl_driver bl_driver;
/* Finds the driver; a status. */
int bl_driver_load(void);

/* context.c: what each CUDA context has for these libraries */
struct bl_context {
	struct bl_context *next;
	CUcontext handle;
	unsigned long long id;
	CUfunction touch;
	uint64_t *word; /* the address that the next kernel touches: its own, or one that is missing */
};
/* The current context, with the device's primary one made current where there is none. */
int bl_context_current(struct bl_context **out);

/* work.c */
struct work {
	void (*run)(struct work *work); /* on the runner's thread */
	void (*release)(struct work *work); /* frees it */
	struct bl_context *context;
	bool kept; /* a graph has it and runs it any number of times */
	bool wild; /* an address was missing */
};
/* Posts the work on the stream; takes it in any case. With `wait`, comes back when it is done. */
int bl_post(struct work *work, CUstream stream, bool wait);
/* For run: is the memory there? If not, the context is going to fail, and run returns at once. */
bool bl_reach(struct work *work, const void *address, int64_t bytes);

/* runner.c */
int bl_runner_start(void);
/* Runs the work and comes back when it is done. */
void bl_runner_run(struct work *work);

/* handle.c: both libraries' handles begin alike, so a cuBLAS handle serves as one of cuBLASLt */
enum { BL_HANDLE_MAGIC = 0x5347b1a5 };
struct bl_handle {
	uint32_t magic, live;
	struct bl_context *context;
	CUstream stream;
	int pointer_mode, math_mode, atomics_mode, sm_count_target;
	CUdeviceptr own_workspace;
	void *workspace; /* the program's */
	size_t workspace_bytes;
};
bool bl_handle_valid(const void *handle);
struct bl_handle *bl_handle_create(int *status);
int bl_handle_destroy(struct bl_handle *handle);
/* Before work: the context is current, and the library has its workspace. */
int bl_handle_enter(struct bl_handle *handle);
/* The library's version as one number, from the build. */
int bl_version(void);
const char *bl_status_name(int status);
const char *bl_status_text(int status);

#endif
