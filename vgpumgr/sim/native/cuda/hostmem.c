/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked host memory. With unified addressing it has one address for host and device, in every context. */
#include <sys/mman.h>

#include "captures.h"

enum { PAGE = 4096 };

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	size_t bytes;
	CUresult r;
	void *p;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = cuda_check_host_alloc(out, size, flags);
	if (r != CUDA_SUCCESS)
		return r;
	if (__builtin_add_overflow(size, PAGE - 1, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	bytes -= bytes % PAGE;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vm_add_host(ctx, ALLOCATION_HOST, (uint64_t)p, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
	if (r != CUDA_SUCCESS) {
		munmap(p, bytes);
		return r;
	}
	*out = p;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

static bool is_host(const struct allocation *a)
{
	return a->kind == ALLOCATION_HOST;
}

static bool is_registered(const struct allocation *a)
{
	return a->kind == ALLOCATION_REGISTERED;
}

CUresult cuMemFreeHost(void *p)
{
	struct allocation a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (!p)
		return CUDA_SUCCESS;
	if (!vm_find((uint64_t)p, &a) || a.addr != (uint64_t)p || !is_host(&a))
		return CUDA_ERROR_INVALID_VALUE;
	r = context_drain(ctx);
	return r == CUDA_SUCCESS ? vm_remove((uint64_t)p, is_host, &a) : r;
}

/* What is registered must be there: the kernel says whether every page is mapped. */
static bool is_mapped(const void *p, size_t size)
{
	uint64_t first = (uint64_t)p / PAGE * PAGE, end = (uint64_t)p + size;

	return !msync((void *)first, end - first, MS_ASYNC);
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = cuda_check_host_register(p, size, flags);
	if (r != CUDA_SUCCESS)
		return r;
	if (vm_is_device_range((uint64_t)p) || !is_mapped(p, size))
		return CUDA_ERROR_INVALID_VALUE;
	return vm_add_host(ctx, ALLOCATION_REGISTERED, (uint64_t)p, size, flags | CU_MEMHOSTREGISTER_DEVICEMAP);
}

CUresult cuMemHostUnregister(void *p)
{
	struct allocation a;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!vm_find((uint64_t)p, &a) || a.addr != (uint64_t)p || !is_registered(&a))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	r = context_drain(ctx);
	return r == CUDA_SUCCESS ? vm_remove((uint64_t)p, is_registered, &a) : r;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned int flags)
{
	struct allocation a;

	CONTEXT_ENTER(ctx);
	if (!out || flags || !vm_find((uint64_t)p, &a) || !is_host_memory(&a))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
	struct allocation a;

	CONTEXT_ENTER(ctx);
	if (!flags || !vm_find((uint64_t)p, &a) || !is_host_memory(&a))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = a.flags;
	return CUDA_SUCCESS;
}
