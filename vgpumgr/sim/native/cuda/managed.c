/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about managed memory, which has one place here: checked, and followed by doing nothing. */
#include "cuda_sim.h"

static CUresult check(CUdeviceptr address, size_t bytes)
{
	struct allocation a;

	return bytes && vm_contains(address, bytes, &a) && a.managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
	(void)device;
	CONTEXT_ENTER(ctx);
	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	return check(address, bytes);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	return cuMemAdvise(address, bytes, advice, location.id);
}

static CUresult check_on_stream(CUstream handle, CUdeviceptr address, size_t bytes)
{
	struct stream *stream;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = stream_get(ctx, handle, &stream);
	return r == CUDA_SUCCESS ? check(address, bytes) : r;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
	(void)device;
	return check_on_stream(stream, address, bytes);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
			       CUstream stream)
{
	(void)location;
	return flags ? CUDA_ERROR_INVALID_VALUE : check_on_stream(stream, address, bytes);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)
{
	struct allocation a;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!vm_find(address, &a) || a.addr != address || (bytes && bytes != a.size))
		return CUDA_ERROR_INVALID_VALUE;
	return check_on_stream(stream, address, a.size);
}

static CUresult check_each(const CUdeviceptr *at, const size_t *sizes, size_t count, unsigned long long flags, CUstream stream)
{
	CUresult r = at && sizes && count && !flags && !stream_is_legacy(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	CONTEXT_ENTER(ctx);
	(void)ctx;
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = check_on_stream(stream, at[i], sizes[i]);
	return r;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *places, size_t *first, size_t kinds,
				 unsigned long long flags, CUstream stream)
{
	CUresult r = places ? cuda_check_parts(first, kinds, count) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? check_each(at, sizes, count, flags, stream) : r;
}

/* What is discarded may be read as it was. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, unsigned long long flags, CUstream stream)
{
	return check_each(at, sizes, count, flags, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *places, size_t *first,
					   size_t kinds, unsigned long long flags, CUstream stream)
{
	return cuMemPrefetchBatchAsync(at, sizes, count, places, first, kinds, flags, stream);
}
