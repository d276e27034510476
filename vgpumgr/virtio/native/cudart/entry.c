/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions by name, and small things that belong nowhere else. */
#include "runtime.h"

static cudaError_t entry_point(const char *symbol, void **out, int version, unsigned long long flags,
			       enum cudaDriverEntryPointQueryResult *status)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	CUresult result;
	cudaError_t error = symbol && out ? rt_init() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	*out = NULL;
	result = CU(cuGetProcAddress, symbol, out, version, flags, &found);
	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)found;
	/* Whoever takes the status reads the reason there. */
	return result == CUDA_ERROR_NOT_FOUND && status ? cudaSuccess : rt_error(result);
}

/* In a program compiled for per-thread default streams, unless it asks otherwise. */
static unsigned long long thread_flags(unsigned long long flags)
{
	return flags == cudaEnableDefault ? cudaEnablePerThreadDefaultStream : flags;
}

API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
					enum cudaDriverEntryPointQueryResult *driverStatus)
{
	return rt_done(entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus));
}

API cudaError_t cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr, unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *driverStatus)
{
	return rt_done(entry_point(symbol, funcPtr, CUDART_VERSION, thread_flags(flags), driverStatus));
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr, unsigned int cudaVersion,
						 unsigned long long flags,
						 enum cudaDriverEntryPointQueryResult *driverStatus)
{
	return rt_done(entry_point(symbol, funcPtr, (int)cudaVersion, flags, driverStatus));
}

API cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **funcPtr, unsigned int cudaVersion,
						      unsigned long long flags,
						      enum cudaDriverEntryPointQueryResult *driverStatus)
{
	return rt_done(entry_point(symbol, funcPtr, (int)cudaVersion, thread_flags(flags), driverStatus));
}

API struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
	return (struct cudaChannelFormatDesc){ x, y, z, w, f };
}
