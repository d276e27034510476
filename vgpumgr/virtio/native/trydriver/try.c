/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session and vgpumgr-hold need to start, and nothing else: it has no device and computes nothing. A call that is
 * missing here is not supported (worker/driver.c), so that nothing but a session's beginning can be tried with it.
 */
#include <cuda.h>

#include "start.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned int flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : start_as_nvidias_driver();
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = 0;
	return CUDA_SUCCESS;
}

/* vgpumgr-hold looks for these two; there is no slice to be held. */
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	(void)device, (void)ordinal;
	return CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	(void)context, (void)flags, (void)device;
	return CUDA_ERROR_INVALID_DEVICE;
}
