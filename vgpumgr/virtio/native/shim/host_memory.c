/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Pinned" host memory: ordinary memory of this process, with the bookkeeping of the real thing. What the program wants
 * mapped on the device is managed memory, with its rule: kernels and the program use it in turn.
 */
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "managed.h"

enum { PAGE = 4096 };

static CUresult allocate(void **pp, size_t bytes, unsigned int flags)
{
	struct shim_range range = { .flags = flags };
	void *at = NULL;
	CUresult r = shim_enter(&range.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = cuda_check_host_alloc(pp, bytes, flags);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags & CU_MEMHOSTALLOC_DEVICEMAP) {
		range.host = true;
		range.bytes = bytes;
		r = shim_managed_make(&range);
		if (r != CUDA_ERROR_NOT_SUPPORTED) {
			*pp = (void *)range.start;
			return r;
		}
		range = (struct shim_range){ .flags = flags, .context = range.context };
	}
	if (bytes > SIZE_MAX - PAGE || posix_memalign(&at, PAGE, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(at, 0, bytes);
	range.start = (uint64_t)at;
	range.bytes = bytes;
	r = shim_range_add(SHIM_RANGE_HOST, &range);
	if (r == CUDA_SUCCESS)
		*pp = at;
	else
		free(at);
	return r;
}

SHIM_API CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
{
	return allocate(pp, bytesize, flags);
}

SHIM_API CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return allocate(pp, bytesize, 0);
}

static bool find_mapped(const void *p, struct shim_range *range)
{
	return shim_range_find(SHIM_RANGE_DEVICE, (uint64_t)p, range) && range->host;
}

SHIM_API CUresult cuMemFreeHost(void *p)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r != CUDA_SUCCESS || !p)
		return r;
	if (find_mapped(p, &range)) {
		if (range.start != (uint64_t)p || !shim_range_remove(SHIM_RANGE_DEVICE, &range))
			return CUDA_ERROR_INVALID_VALUE;
		return shim_managed_free(&range);
	}
	if (!shim_range_find(SHIM_RANGE_HOST, (uint64_t)p, &range) || range.start != (uint64_t)p || range.registered)
		return CUDA_ERROR_INVALID_VALUE;
	/* copies from it were taken over when they were called, so nothing reads it any more */
	if (shim_range_remove(SHIM_RANGE_HOST, &range))
		free(p);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
{
	struct shim_range range = { .start = (uint64_t)p, .bytes = bytesize, .flags = flags, .registered = true }, old;
	CUresult r = shim_enter(&range.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = cuda_check_host_register(p, bytesize, flags);
	if (r == CUDA_SUCCESS && flags & CU_MEMHOSTREGISTER_READ_ONLY)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	if (shim_range_find(SHIM_RANGE_HOST, (uint64_t)p, &old) ||
	    shim_range_find(SHIM_RANGE_HOST, (uint64_t)p + bytesize - 1, &old))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return shim_range_add(SHIM_RANGE_HOST, &range);
}

SHIM_API CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int flags)
{
	return cuMemHostRegister_v2(p, bytesize, flags);
}

SHIM_API CUresult cuMemHostUnregister(void *p)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r != CUDA_SUCCESS)
		return r;
	if (!shim_range_find(SHIM_RANGE_HOST, (uint64_t)p, &range) || range.start != (uint64_t)p || !range.registered)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	shim_range_remove(SHIM_RANGE_HOST, &range);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && !pFlags)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && !find_mapped(p, &range) &&
	    (!shim_range_find(SHIM_RANGE_HOST, (uint64_t)p, &range) || range.registered))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pFlags = range.flags;
	return r;
}

/* Other memory of the guest is not in the worker's address space: kernels cannot reach it. */
SHIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!pdptr || flags))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && find_mapped(p, &range)) {
		*pdptr = (CUdeviceptr)p;
		return CUDA_SUCCESS;
	}
	if (r == CUDA_SUCCESS && !shim_range_find(SHIM_RANGE_HOST, (uint64_t)p, &range))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*pdptr = 0;
	return shim_refuse("cuMemHostGetDevicePointer");
}
