/* SPDX-License-Identifier: Apache-2.0 */
/* Names that CUDA 13 dropped: older spellings of calls that are still there. */
#include "runtime.h"

API cudaError_t cudaThreadSynchronize(void)
{
	return cudaDeviceSynchronize();
}

API cudaError_t cudaThreadExit(void)
{
	return cudaDeviceReset();
}

API cudaError_t cudaThreadSetLimit(enum cudaLimit limit, size_t value)
{
	return cudaDeviceSetLimit(limit, value);
}

API cudaError_t cudaThreadGetLimit(size_t *pValue, enum cudaLimit limit)
{
	return cudaDeviceGetLimit(pValue, limit);
}

API cudaError_t cudaThreadSetCacheConfig(enum cudaFuncCache cacheConfig)
{
	return cudaDeviceSetCacheConfig(cacheConfig);
}

API cudaError_t cudaThreadGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
	return cudaDeviceGetCacheConfig(pCacheConfig);
}

/* All devices have had double precision since compute capability 1.3: there is nothing to convert. */
API cudaError_t cudaSetDoubleForDevice(double *d)
{
	(void)d;
	return cudaSuccess;
}

API cudaError_t cudaSetDoubleForHost(double *d)
{
	(void)d;
	return cudaSuccess;
}
