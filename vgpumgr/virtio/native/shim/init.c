/* SPDX-License-Identifier: Apache-2.0 */
/* Start, versions, error texts, and finding functions by name. */
#include "procs.h"
#include "shim.h"

SHIM_API CUresult cuInit(unsigned int flags)
{
	uint32_t count;
	CUresult r = flags ? CUDA_ERROR_INVALID_VALUE : shim_connect();

	if (r == CUDA_SUCCESS)
		r = shim_device_count(&count);
	if (r == CUDA_SUCCESS && !count)
		r = CUDA_ERROR_NO_DEVICE;
	if (r == CUDA_SUCCESS)
		shim_mark_initialized();
	return r;
}

/* Works before cuInit. Without a channel it says what this library implements. */
SHIM_API CUresult cuDriverGetVersion(int *driverVersion)
{
	struct vg_snapshot_reply out;

	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = SHIM_DRIVER_VERSION;
	if (shim_connect() == CUDA_SUCCESS && vg_send_snapshot(&out) == CUDA_SUCCESS &&
	    out.driver_version < SHIM_DRIVER_VERSION)
		*driverVersion = out.driver_version;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	return cuda_error_name(error, pStr);
}

SHIM_API CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	return cuda_error_string(error, pStr);
}

SHIM_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}

SHIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				      CUdriverProcAddressQueryResult *symbolStatus)
{
	return cuda_find_proc(shim_procs, shim_procs_count, symbol, cudaVersion, flags, pfn, symbolStatus);
}

/* Profilers may always be switched: none can be attached to a forwarded GPU. */
SHIM_API CUresult cuProfilerStart(void)
{
	uint64_t context;

	return shim_enter_current(&context);
}

SHIM_API CUresult cuProfilerStop(void)
{
	uint64_t context;

	return shim_enter_current(&context);
}
