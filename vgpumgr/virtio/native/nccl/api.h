/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's documented interface as far as this library has it, with the vendor's numbers and layouts. */
#ifndef VG_NCCL_API_H
#define VG_NCCL_API_H

#include <cuda.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { NCCL_VERSION_CODE = 23203, NCCL_UNDEF = INT_MIN, NCCL_SPLIT_NOCOLOR = -1, NCCL_MAGIC = (int)0xcafebeef };

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef enum {
	ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage,
	ncclRemoteError, ncclInProgress, ncclTimeout, ncclNumResults
} ncclResult_t;

typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps } ncclRedOp_t;

typedef enum {
	ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64,
	ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes
} ncclDataType_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

/* Its beginning, which all versions have; what follows chooses among kinds of transport and is not read. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
} ncclConfig_t;

/* Of one collective: all but the event says how the vendor's kernels are launched. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	void *ext;
	int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
	const char *algSelection;
	int forceAlgSelection, CTAPolicy;
	uint64_t userProfilerTag;
	CUevent launchCompletionEvent;
} ncclCollConfig_t;

/* An exported function, under the name that profilers call, too. */
#define NCCL_API __attribute__((visibility("default")))
#define NCCL_PROFILED(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

#endif
