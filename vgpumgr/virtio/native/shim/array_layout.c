/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about planar, sparse and deferred arrays. There are none of these, and of any other the documented answer is this. */
#include "arrays.h"
#include "shim.h"

static CUresult of_none(const void *out, CUresult found)
{
	CUresult r = shim_enter(&(uint64_t){ 0 });

	if (r == CUDA_SUCCESS && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = found;
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
}

SHIM_API CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
	(void)planeIdx;
	return of_none(pPlaneArray, shim_array(hArray, &(struct cuda_array){ .rank = 0 }));
}

SHIM_API CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array)
{
	return of_none(sparseProperties, shim_array(array, &(struct cuda_array){ .rank = 0 }));
}

SHIM_API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array, CUdevice device)
{
	(void)device;
	return of_none(memoryRequirements, shim_array(array, &(struct cuda_array){ .rank = 0 }));
}

SHIM_API CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUmipmappedArray mipmap)
{
	return of_none(sparseProperties, shim_mipmap(mipmap, &(struct cuda_array){ .rank = 0 }));
}

SHIM_API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUmipmappedArray mipmap,
							CUdevice device)
{
	(void)device;
	return of_none(memoryRequirements, shim_mipmap(mipmap, &(struct cuda_array){ .rank = 0 }));
}
