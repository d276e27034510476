/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions that this library stands on. */
#ifndef VG_NCCL_CUDA_CALLS_H
#define VG_NCCL_CUDA_CALLS_H

#include <cuda.h>
#include <guest_math.h>
#include <stdbool.h>

#define CUDA_CALLS(of) \
	of(cuInit) of(cuDeviceGetCount) of(cuDevicePrimaryCtxRetain) of(cuDevicePrimaryCtxRelease) \
	of(cuCtxGetCurrent) of(cuCtxPushCurrent) of(cuCtxPopCurrent) of(cuCtxSetCurrent) of(cuCtxGetDevice) \
	of(cuStreamCreate) of(cuStreamDestroy) of(cuStreamSynchronize) of(cuStreamIsCapturing) \
	of(cuStreamWaitValue32) of(cuStreamWriteValue32) of(cuLaunchHostFunc) of(cuThreadExchangeStreamCaptureMode) \
	of(cuEventCreate) of(cuEventRecord) of(cuEventQuery) of(cuEventDestroy) \
	of(cuMemAlloc) of(cuMemFree) of(cuMemcpyDtoHAsync) of(cuMemcpyHtoDAsync) of(cuMemsetD32Async) \
	of(cuPointerGetAttribute) of(cuGetErrorName)

#define CUDA_MEMBER(name) __typeof__(&name) name;
/* The header's macros give each its current version. */
struct cuda_calls {
	CUDA_CALLS(CUDA_MEMBER)
};
extern struct cuda_calls cu;

/* False: this process has no driver, or one that lacks a function. */
bool cuda_load(void);
/* The current context, else the runtime's or that of device 0. */
CUresult cuda_current(CUcontext *context);

#endif
