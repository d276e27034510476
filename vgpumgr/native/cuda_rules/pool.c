/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of memory that is allocated in stream order. */
#include "cuda_rules.h"

CUresult cuda_check_pool_properties(const CUmemPoolProps *p)
{
	if (!p || p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type <= CU_MEM_LOCATION_TYPE_INVALID || p->location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	return !(p->handleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
			       p->location.type == CU_MEM_LOCATION_TYPE_DEVICE ?
		       CUDA_SUCCESS :
		       CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuda_check_pool_location(const CUmemLocation *location, CUmemAllocationType type)
{
	if (!location || (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	return type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE ?
		       CUDA_SUCCESS :
		       CUDA_ERROR_NOT_SUPPORTED;
}

size_t cuda_pool_attribute_size(CUmemPool_attribute attribute)
{
	switch ((int)attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return sizeof(int);
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return sizeof(cuuint64_t);
	default:
		return 0;
	}
}

static CUresult set_access(const CUmemAccessDesc *access, struct cuda_reach *reach)
{
	const CUmemLocation *to = &access->location;

	if (to->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (to->id < 0 || to->id >= reach->devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
		reach->access |= UINT32_C(1) << to->id;
		return reach->able >> to->id & 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	}
	if (to->id == reach->own)
		return CUDA_ERROR_INVALID_VALUE;
	reach->access &= ~(UINT32_C(1) << to->id);
	return access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuda_set_pool_access(const CUmemAccessDesc *list, size_t count, struct cuda_reach *reach)
{
	CUresult r = list || !count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = set_access(&list[i], reach);
	return r;
}

CUresult cuda_read_pool_access(const CUmemLocation *location, const struct cuda_reach *reach, CUmemAccess_flags *flags)
{
	if (!location || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (location->id < 0 || location->id >= reach->devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = reach->access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
