/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about planar, sparse and deferred arrays. There are none of these, and of any other the documented answer is this. */
#include "cuda_sim.h"

static CUresult of_none(const void *out, const void *handle, enum handle_kind kind)
{
	CONTEXT_ENTER(ctx);
	(void)ctx;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	return handle_is(handle, kind) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index)
{
	(void)index;
	return of_none(plane, array, HANDLE_ARRAY);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array)
{
	return of_none(out, array, HANDLE_ARRAY);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array, CUdevice device)
{
	(void)device;
	return of_none(out, array, HANDLE_ARRAY);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray mipmap)
{
	return of_none(out, mipmap, HANDLE_MIPMAP);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray mipmap, CUdevice device)
{
	(void)device;
	return of_none(out, mipmap, HANDLE_MIPMAP);
}
