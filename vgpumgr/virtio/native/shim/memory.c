/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory. Addresses are the worker's own; what is allocated is known on both sides. */
#include "captures.h"
#include "managed.h"

CUresult shim_remember_memory(uint64_t context, uint64_t address, uint64_t bytes)
{
	struct shim_range range = { .start = address, .bytes = bytes, .context = context };
	struct vg_memory_free_request in = { .context = context, .address = address };
	CUresult r = shim_range_add(SHIM_RANGE_DEVICE, &range);

	if (r != CUDA_SUCCESS)
		vg_send_memory_free(&in);
	return r;
}

/* An allocation, by its start; a module's variables cannot be freed. */
static bool take(uint64_t address, struct shim_range *range)
{
	if (!shim_range_find(SHIM_RANGE_DEVICE, address, range) || range->module || range->host || range->physical)
		return false;
	return shim_range_remove(SHIM_RANGE_DEVICE, address, range);
}

SHIM_API CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct vg_memory_allocate_request in = { .bytes = bytesize };
	struct vg_memory_allocate_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS && (!dptr || !bytesize))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = vg_send_memory_allocate(&in, &out);
	if (r == CUDA_SUCCESS)
		r = shim_remember_memory(in.context, out.address, bytesize);
	if (r == CUDA_SUCCESS)
		*dptr = out.address;
	return r;
}

SHIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				     unsigned int ElementSizeBytes)
{
	struct vg_memory_allocate_pitch_request in = { .width = WidthInBytes, .height = Height,
						       .element = ElementSizeBytes };
	struct vg_memory_allocate_pitch_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = cuda_check_alloc_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	if (r == CUDA_SUCCESS)
		r = vg_send_memory_allocate_pitch(&in, &out);
	if (r == CUDA_SUCCESS)
		r = shim_remember_memory(in.context, out.address, out.pitch * Height);
	if (r != CUDA_SUCCESS)
		return r;
	*dptr = out.address;
	*pPitch = out.pitch;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct vg_memory_free_request in = { .address = dptr };
	struct shim_range range;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r != CUDA_SUCCESS || !dptr)
		return r;
	if (!take(dptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	in.context = range.context;
	if (range.managed)
		return shim_managed_free(&range);
	return vg_send_memory_free(&in);
}

SHIM_API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct vg_memory_free_async_request in = { .address = dptr };
	struct shim_range range;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = SHIM_CAPTURE_REFUSE(in.context, in.stream, "freeing in a captured stream");
	if (r != CUDA_SUCCESS || !dptr)
		return r;
	if (shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) && range.managed)
		return CUDA_ERROR_INVALID_VALUE;
	if (!take(dptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return vg_send_memory_free_async(&in);
}

SHIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return cuMemFreeAsync(dptr, hStream ? hStream : CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = range.start;
	if (psize)
		*psize = range.bytes;
	return CUDA_SUCCESS;
}
