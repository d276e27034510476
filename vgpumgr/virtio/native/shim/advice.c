/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about managed memory is checked, kept for cuMemRangeGetAttribute, and not followed: results are right without it. */
#include <pthread.h>

#include "shim.h"

static struct {
	pthread_mutex_t lock;
	struct cuda_advice kept;
} advice = { .lock = PTHREAD_MUTEX_INITIALIZER };

static CUresult find(CUdeviceptr address, size_t bytes, struct cuda_managed *m)
{
	struct shim_range range;

	if (!bytes || !shim_range_find(SHIM_RANGE_DEVICE, address, &range) || !range.managed || range.host)
		return CUDA_ERROR_INVALID_VALUE;
	*m = (struct cuda_managed){ .owner = range.id, .base = range.start, .size = range.bytes, .start = address, .bytes = bytes };
	return bytes <= range.bytes - (address - range.start) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void shim_advice_forget(const struct shim_range *range)
{
	pthread_mutex_lock(&advice.lock);
	cuda_forget_advice(&advice.kept, range->id);
	pthread_mutex_unlock(&advice.lock);
}

SHIM_API CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUmemLocation location)
{
	struct cuda_managed memory;
	uint32_t devices;
	CUresult r = shim_device_count(&devices);

	if (r == CUDA_SUCCESS)
		r = cuda_check_advice(what, &location, (int)devices);
	if (r == CUDA_SUCCESS)
		r = find(devPtr, count, &memory);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&advice.lock);
	r = cuda_advise(&advice.kept, &memory, what, location);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

SHIM_API CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUdevice device)
{
	return cuMemAdvise_v2(devPtr, count, what, cuda_location_of(device));
}

/* `to` is NULL where nothing is prefetched. */
static CUresult prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation *to, CUstream hStream)
{
	CUmemLocation where = to ? *to : (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST };
	struct cuda_managed memory;
	uint64_t context, stream;
	uint32_t devices;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r == CUDA_SUCCESS)
		r = shim_device_count(&devices);
	if (r == CUDA_SUCCESS)
		r = cuda_check_prefetch(&where, (int)devices);
	if (r == CUDA_SUCCESS)
		r = find(address, bytes, &memory);
	if (r != CUDA_SUCCESS || !to)
		return r;
	pthread_mutex_lock(&advice.lock);
	r = cuda_note_prefetch(&advice.kept, &memory, where);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

SHIM_API CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	const CUmemLocation to = cuda_location_of(dstDevice);

	return prefetch(devPtr, count, &to, hStream);
}

SHIM_API CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return cuMemPrefetchAsync(devPtr, count, dstDevice, SHIM_PER_THREAD(hStream));
}

SHIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
					CUstream hStream)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(devPtr, count, &location, hStream);
}

SHIM_API CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
					     unsigned int flags, CUstream hStream)
{
	return cuMemPrefetchAsync_v2(devPtr, count, location, flags, SHIM_PER_THREAD(hStream));
}

SHIM_API CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr, size_t count)
{
	struct cuda_managed memory;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = find(devPtr, count, &memory);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&advice.lock);
	r = cuda_range_attribute(&advice.kept, &memory, attribute, data, dataSize);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

SHIM_API CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes, size_t numAttributes,
					  CUdeviceptr devPtr, size_t count)
{
	return cuda_range_attributes(data, dataSizes, attributes, numAttributes, devPtr, count, cuMemRangeGetAttribute);
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
	return cuStreamAttachMemAsync(SHIM_PER_THREAD(hStream), dptr, length, flags);
}

/* In streams that can be waited for apart. */
static CUresult prefetch_each(const struct cuda_prefetches *each, unsigned long long flags, CUstream hStream)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!hStream || hStream == CU_STREAM_LEGACY))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? cuda_prefetch_each(each, flags, hStream, prefetch) : r;
}

SHIM_API CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
					  size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	const struct cuda_prefetches each = { dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs };
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = prefetchLocs ? cuda_check_parts(prefetchLocIdxs, numPrefetchLocs, count) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? prefetch_each(&each, flags, hStream) : r;
}

SHIM_API CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
					       size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, SHIM_PER_THREAD(hStream));
}

/* What is discarded may be read as it was. */
SHIM_API CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)
{
	const struct cuda_prefetches each = { .at = dptrs, .sizes = sizes, .count = count };

	return prefetch_each(&each, flags, hStream);
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
