/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about managed memory: checked, and followed by doing nothing, for every answer is right without it. */
#include "shim.h"

static CUresult check_advised(CUdeviceptr address, size_t bytes)
{
	struct shim_range range;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if (!bytes || !shim_range_find(SHIM_RANGE_DEVICE, address, &range) || !range.managed || range.host)
		return CUDA_ERROR_INVALID_VALUE;
	return bytes <= range.bytes - (address - range.start) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	(void)device;
	if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	return check_advised(devPtr, count);
}

SHIM_API CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	return cuMemAdvise(devPtr, count, advice, location.id);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUstream hStream)
{
	uint64_t context, stream;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	return r == CUDA_SUCCESS ? check_advised(address, bytes) : r;
}

SHIM_API CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	(void)dstDevice;
	return prefetch(devPtr, count, hStream);
}

SHIM_API CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return cuMemPrefetchAsync(devPtr, count, dstDevice, hStream ? hStream : CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
					CUstream hStream)
{
	(void)location;
	return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, hStream);
}

SHIM_API CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
					     unsigned int flags, CUstream hStream)
{
	return cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream ? hStream : CU_STREAM_PER_THREAD);
}

/* Memory that a stream has for itself is treated like all other: what touches it waits for more than it must. */
SHIM_API CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	uint64_t context, stream;
	struct shim_range range;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) || !range.managed || range.host ||
	    range.start != dptr)
		return CUDA_ERROR_INVALID_VALUE;
	return !length || length == range.bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	return cuStreamAttachMemAsync(hStream ? hStream : CU_STREAM_PER_THREAD, dptr, length, flags);
}

static CUresult advise_each(const CUdeviceptr *at, const size_t *sizes, size_t count, unsigned long long flags, CUstream stream)
{
	CUresult r = at && sizes && count && !flags && stream && stream != CU_STREAM_LEGACY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = prefetch(at[i], sizes[i], stream);
	return r;
}

SHIM_API CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
					  size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = prefetchLocs ? cuda_check_parts(prefetchLocIdxs, numPrefetchLocs, count) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? advise_each(dptrs, sizes, count, flags, hStream) : r;
}

SHIM_API CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
					       size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, SHIM_PER_THREAD(hStream));
}

/* What is discarded may be read as it was. */
SHIM_API CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)
{
	CUresult r = shim_ready();

	return r == CUDA_SUCCESS ? advise_each(dptrs, sizes, count, flags, hStream) : r;
}

SHIM_API CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)
{
	return cuMemDiscardBatchAsync(dptrs, sizes, count, flags, SHIM_PER_THREAD(hStream));
}

SHIM_API CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
						    size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

SHIM_API CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
							 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
							 CUstream hStream)
{
	return cuMemPrefetchBatchAsync_ptsz(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
