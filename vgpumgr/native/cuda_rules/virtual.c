/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: physical memory of a device, addresses, and what is mapped where. */
#include "cuda_rules.h"

enum { PAGE = 4096 };

/* Memory that needs another kind of handle than a descriptor, another place or another use than kernels' does not exist. */
CUresult cuda_check_physical(const CUmemAllocationProp *p)
{
	if (!p || (p->type != CU_MEM_ALLOCATION_TYPE_PINNED && p->type != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type <= CU_MEM_LOCATION_TYPE_INVALID || p->location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (p->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return p->allocFlags.gpuDirectRDMACapable || p->allocFlags.usage ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuda_check_granularity(const size_t *granularity, const CUmemAllocationProp *p,
				CUmemAllocationGranularity_flags option)
{
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	return cuda_check_physical(p);
}

CUresult cuda_check_reserve(const CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
			    unsigned long long flags)
{
	if (!address || !bytes || bytes % PAGE || wish % PAGE || alignment & (alignment - 1) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuda_check_mappable(CUdeviceptr address, size_t bytes, size_t granularity)
{
	CUdeviceptr end;

	if (!bytes || address % granularity || bytes % granularity)
		return CUDA_ERROR_INVALID_VALUE;
	return __builtin_add_overflow(address, bytes, &end) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuda_check_map(CUdeviceptr address, size_t bytes, size_t offset, size_t granularity, unsigned long long flags)
{
	return offset || flags ? CUDA_ERROR_INVALID_VALUE : cuda_check_mappable(address, bytes, granularity);
}

static CUresult check_access(const CUmemAccessDesc *access, const struct cuda_reach *reach)
{
	if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (access->location.id < 0 || access->location.id >= reach->devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
		return CUDA_SUCCESS;
	if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	return reach->able >> access->location.id & 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuda_set_mapped_access(const CUmemAccessDesc *list, size_t count, struct cuda_reach *reach)
{
	CUresult r = list && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = check_access(&list[i], reach);
		if (r == CUDA_SUCCESS && list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			reach->access &= ~(UINT32_C(1) << list[i].location.id);
		else if (r == CUDA_SUCCESS)
			reach->access |= UINT32_C(1) << list[i].location.id;
	}
	return r;
}

CUresult cuda_check_access_place(const unsigned long long *flags, const CUmemLocation *location, int devices)
{
	if (!location || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return location->id < 0 || location->id >= devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
