/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory, and advice about it. */
#include "runtime.h"

static cudaError_t allocate(void **out, size_t size, unsigned int flags)
{
	CUdeviceptr address = 0;
	bool known = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost;
	cudaError_t error = out && (size || known) ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	if (!size) { /* as NVIDIA's 13.0 does; its documentation says cudaErrorInvalidValue */
		*out = NULL;
		return cudaSuccess;
	}
	error = rt_error(CU(cuMemAllocManaged, &address, size, flags));
	*out = (void *)address;
	return error;
}

API cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
	return rt_done(allocate(devPtr, size, flags));
}

STREAM_API(cudaStreamAttachMemAsync, (cudaStream_t stream, void *devPtr, size_t length, unsigned int flags),
	   RT_CALL(cuStreamAttachMemAsync, stream, (CUdeviceptr)devPtr, length, flags))

static CUmemLocation locate(struct cudaMemLocation location)
{
	return (CUmemLocation){ .type = (CUmemLocationType)location.type, .id = location.id };
}

_Static_assert(sizeof(enum cudaMemRangeAttribute) == sizeof(CUmem_range_attribute), "one and the same");

API cudaError_t cudaMemRangeGetAttribute(void *data, size_t dataSize, enum cudaMemRangeAttribute attribute, const void *devPtr,
					 size_t count)
{
	return rt_done(RT_CALL(cuMemRangeGetAttribute, data, dataSize, (CUmem_range_attribute)attribute, (CUdeviceptr)devPtr, count));
}

API cudaError_t cudaMemRangeGetAttributes(void **data, size_t *dataSizes, enum cudaMemRangeAttribute *attributes,
					  size_t numAttributes, const void *devPtr, size_t count)
{
	return rt_done(RT_CALL(cuMemRangeGetAttributes, data, dataSizes, (CUmem_range_attribute *)attributes, numAttributes,
			       (CUdeviceptr)devPtr, count));
}

#if CUDART_VERSION >= 13000

API cudaError_t cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
			      struct cudaMemLocation location)
{
	return rt_done(RT_CALL(cuMemAdvise, (CUdeviceptr)devPtr, count, (CUmem_advise)advice, locate(location)));
}

STREAM_API(cudaMemPrefetchAsync, (const void *devPtr, size_t count, struct cudaMemLocation location,
				  unsigned int flags, cudaStream_t stream),
	   RT_CALL(cuMemPrefetchAsync, (CUdeviceptr)devPtr, count, locate(location), flags, stream))

_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "one and the same");

STREAM_API(cudaMemPrefetchBatchAsync, (void **dptrs, size_t *sizes, size_t count, struct cudaMemLocation *prefetchLocs,
				       size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, cudaStream_t stream),
	   RT_CALL(cuMemPrefetchBatchAsync, (CUdeviceptr *)dptrs, sizes, count, (CUmemLocation *)prefetchLocs, prefetchLocIdxs,
		   numPrefetchLocs, flags, stream))

STREAM_API(cudaMemDiscardBatchAsync, (void **dptrs, size_t *sizes, size_t count, unsigned long long flags, cudaStream_t stream),
	   RT_CALL(cuMemDiscardBatchAsync, (CUdeviceptr *)dptrs, sizes, count, flags, stream))

STREAM_API(cudaMemDiscardAndPrefetchBatchAsync,
	   (void **dptrs, size_t *sizes, size_t count, struct cudaMemLocation *prefetchLocs, size_t *prefetchLocIdxs,
	    size_t numPrefetchLocs, unsigned long long flags, cudaStream_t stream),
	   RT_CALL(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *)dptrs, sizes, count, (CUmemLocation *)prefetchLocs, prefetchLocIdxs,
		   numPrefetchLocs, flags, stream))
#else
API cudaError_t cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice, int device)
{
	return rt_done(RT_CALL(cuMemAdvise, (CUdeviceptr)devPtr, count, (CUmem_advise)advice, device));
}

API cudaError_t cudaMemAdvise_v2(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
				 struct cudaMemLocation location)
{
	return rt_done(RT_CALL(cuMemAdvise_v2, (CUdeviceptr)devPtr, count, (CUmem_advise)advice, locate(location)));
}

STREAM_API(cudaMemPrefetchAsync, (const void *devPtr, size_t count, int dstDevice, cudaStream_t stream),
	   RT_CALL(cuMemPrefetchAsync, (CUdeviceptr)devPtr, count, dstDevice, stream))

STREAM_API(cudaMemPrefetchAsync_v2, (const void *devPtr, size_t count, struct cudaMemLocation location,
				     unsigned int flags, cudaStream_t stream),
	   RT_CALL(cuMemPrefetchAsync_v2, (CUdeviceptr)devPtr, count, locate(location), flags, stream))
#endif
