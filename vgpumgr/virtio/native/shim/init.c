/* SPDX-License-Identifier: Apache-2.0 */
/* Start, versions, error texts, and finding functions by name. */
#include <string.h>

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

static const char *const texts[] = {
	[CUDA_SUCCESS] = "no error",
	[CUDA_ERROR_INVALID_VALUE] = "invalid argument",
	[CUDA_ERROR_OUT_OF_MEMORY] = "out of memory",
	[CUDA_ERROR_NOT_INITIALIZED] = "initialization error",
	[CUDA_ERROR_DEINITIALIZED] = "driver shutting down",
	[CUDA_ERROR_DEVICE_UNAVAILABLE] = "CUDA-capable device(s) is/are busy or unavailable",
	[CUDA_ERROR_NO_DEVICE] = "no CUDA-capable device is detected",
	[CUDA_ERROR_INVALID_DEVICE] = "invalid device ordinal",
	[CUDA_ERROR_INVALID_IMAGE] = "device kernel image is invalid",
	[CUDA_ERROR_INVALID_CONTEXT] = "invalid device context",
	[CUDA_ERROR_NO_BINARY_FOR_GPU] = "no kernel image is available for execution on the device",
	[CUDA_ERROR_INVALID_PTX] = "a PTX JIT compilation failed",
	[CUDA_ERROR_UNSUPPORTED_PTX_VERSION] = "the provided PTX was compiled with an unsupported toolchain.",
	[CUDA_ERROR_INVALID_SOURCE] = "device kernel image is invalid",
	[CUDA_ERROR_FILE_NOT_FOUND] = "file not found",
	[CUDA_ERROR_INVALID_HANDLE] = "invalid resource handle",
	[CUDA_ERROR_NOT_FOUND] = "named symbol not found",
	[CUDA_ERROR_NOT_READY] = "device not ready",
	[CUDA_ERROR_ILLEGAL_ADDRESS] = "an illegal memory access was encountered",
	[CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES] = "too many resources requested for launch",
	[CUDA_ERROR_LAUNCH_TIMEOUT] = "the launch timed out and was terminated",
	[CUDA_ERROR_PEER_ACCESS_NOT_ENABLED] = "peer access has not been enabled",
	[CUDA_ERROR_CONTEXT_IS_DESTROYED] = "context is destroyed",
	[CUDA_ERROR_ASSERT] = "device-side assert triggered",
	[CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED] = "part or all of the requested memory range is already mapped",
	[CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED] = "pointer does not correspond to a registered memory region",
	[CUDA_ERROR_HARDWARE_STACK_ERROR] = "hardware stack error",
	[CUDA_ERROR_ILLEGAL_INSTRUCTION] = "an illegal instruction was encountered",
	[CUDA_ERROR_MISALIGNED_ADDRESS] = "misaligned address",
	[CUDA_ERROR_INVALID_ADDRESS_SPACE] = "operation not supported on global/shared address space",
	[CUDA_ERROR_INVALID_PC] = "invalid program counter",
	[CUDA_ERROR_LAUNCH_FAILED] = "unspecified launch failure",
	[CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE] = "too many blocks in cooperative launch",
	[CUDA_ERROR_NOT_PERMITTED] = "operation not permitted",
	[CUDA_ERROR_NOT_SUPPORTED] = "operation not supported",
	[CUDA_ERROR_SYSTEM_NOT_READY] = "system not yet initialized",
	[CUDA_ERROR_SYSTEM_DRIVER_MISMATCH] = "system has unsupported display driver / cuda driver combination",
	[CUDA_ERROR_UNKNOWN] = "unknown error",
};

static const char *name_of(int code)
{
	for (unsigned int i = 0; i < shim_error_names_count; i++)
		if (shim_error_names[i].code == code)
			return shim_error_names[i].name;
	return NULL;
}

SHIM_API CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = name_of(error);
	return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	const char *name = name_of(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = NULL;
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if ((size_t)error < sizeof(texts) / sizeof(texts[0]))
		*pStr = texts[error];
	if (!*pStr)
		*pStr = name; /* rare ones: the name says it */
	return CUDA_SUCCESS;
}

/* The newest variant not newer than `version`; *any tells whether the name is known at all. */
static const struct shim_proc *find(const char *symbol, int version, bool per_thread, bool *any)
{
	const struct shim_proc *best = NULL;

	for (unsigned int i = 0; i < shim_procs_count; i++) {
		const struct shim_proc *p = &shim_procs[i];

		if (p->per_thread != per_thread || strcmp(p->name, symbol))
			continue;
		*any = true;
		if (p->version <= version && (!best || p->version > best->version))
			best = p;
	}
	return best;
}

static CUresult lookup(const char *symbol, void **pfn, int version, cuuint64_t flags,
		       CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	const struct shim_proc *p = NULL;
	bool any = false;

	if (!symbol || !pfn || flags & ~known || flags == known)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		p = find(symbol, version, true, &any);
	if (!p)
		p = find(symbol, version, false, &any);
	*pfn = p ? (void *)p->function : NULL;
	if (status)
		*status = p ? CU_GET_PROC_ADDRESS_SUCCESS :
			  any ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SHIM_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	return lookup(symbol, pfn, cudaVersion, flags, NULL);
}

SHIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				      CUdriverProcAddressQueryResult *symbolStatus)
{
	return lookup(symbol, pfn, cudaVersion, flags, symbolStatus);
}
