/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation in stream order, and the pools behind it. */
#include "runtime.h"

_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "memory locations");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "access descriptors");
_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "pool properties");
_Static_assert(offsetof(struct cudaMemPoolProps, maxSize) == offsetof(CUmemPoolProps, maxSize), "pool properties");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData), "memory of pools");
_Static_assert((int)cudaMemPoolAttrUsedMemHigh == (int)CU_MEMPOOL_ATTR_USED_MEM_HIGH, "pool attributes");

static cudaError_t allocate(void **out, size_t size, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error = out ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	error = size ? rt_error(CU(cuMemAllocAsync, &address, size, stream)) : cudaSuccess;
	if (error == cudaSuccess)
		*out = (void *)address;
	return error;
}

STREAM_API(cudaMallocAsync, (void **devPtr, size_t size, cudaStream_t stream), allocate(devPtr, size, stream))

static cudaError_t allocate_from(void **out, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error = out ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	error = size ? rt_error(CU(cuMemAllocFromPoolAsync, &address, size, pool, stream)) : cudaSuccess;
	if (error == cudaSuccess)
		*out = (void *)address;
	return error;
}

STREAM_API(cudaMallocFromPoolAsync, (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
	   allocate_from(ptr, size, memPool, stream))
STREAM_API(cudaFreeAsync, (void *devPtr, cudaStream_t stream),
	   devPtr ? RT_CALL(cuMemFreeAsync, (CUdeviceptr)devPtr, stream) : rt_enter())

static cudaError_t get_pool(cudaMemPool_t *pool, int ordinal, bool initial)
{
	CUdevice device;
	cudaError_t error = pool ? rt_device(ordinal, &device) : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	return rt_error(initial ? CU(cuDeviceGetDefaultMemPool, pool, device) : CU(cuDeviceGetMemPool, pool, device));
}

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
	return rt_done(get_pool(memPool, device, true));
}

API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
	return rt_done(get_pool(memPool, device, false));
}

static cudaError_t set_pool(int ordinal, cudaMemPool_t pool)
{
	CUdevice device;
	cudaError_t error = rt_device(ordinal, &device);

	return error != cudaSuccess ? error : rt_error(CU(cuDeviceSetMemPool, device, pool));
}

API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
	return rt_done(set_pool(device, memPool));
}

API cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)
{
	if (!memPool || !poolProps)
		return rt_done(cudaErrorInvalidValue);
	return rt_done(RT_CALL(cuMemPoolCreate, memPool, (const CUmemPoolProps *)poolProps));
}

API cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool)
{
	return rt_done(RT_CALL(cuMemPoolDestroy, memPool));
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
	return rt_done(RT_CALL(cuMemPoolTrimTo, memPool, minBytesToKeep));
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	return rt_done(RT_CALL(cuMemPoolSetAttribute, memPool, (CUmemPool_attribute)attr, value));
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value)
{
	return rt_done(RT_CALL(cuMemPoolGetAttribute, memPool, (CUmemPool_attribute)attr, value));
}

API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count)
{
	return rt_done(RT_CALL(cuMemPoolSetAccess, memPool, (const CUmemAccessDesc *)descList, count));
}

API cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
				     struct cudaMemLocation *location)
{
	return rt_done(
		RT_CALL(cuMemPoolGetAccess, (CUmemAccess_flags *)flags, memPool, (CUmemLocation *)location));
}

/* ---- between processes */

API cudaError_t cudaMemPoolExportToShareableHandle(void *shareableHandle, cudaMemPool_t memPool,
						   enum cudaMemAllocationHandleType handleType, unsigned int flags)
{
	return rt_done(RT_CALL(cuMemPoolExportToShareableHandle, shareableHandle, memPool, (CUmemAllocationHandleType)handleType, flags));
}

API cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *memPool, void *shareableHandle,
						     enum cudaMemAllocationHandleType handleType, unsigned int flags)
{
	return rt_done(RT_CALL(cuMemPoolImportFromShareableHandle, memPool, shareableHandle, (CUmemAllocationHandleType)handleType, flags));
}

API cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *exportData, void *ptr)
{
	return rt_done(RT_CALL(cuMemPoolExportPointer, (CUmemPoolPtrExportData *)exportData, (CUdeviceptr)ptr));
}

API cudaError_t cudaMemPoolImportPointer(void **ptr, cudaMemPool_t memPool, struct cudaMemPoolPtrExportData *exportData)
{
	return rt_done(RT_CALL(cuMemPoolImportPointer, (CUdeviceptr *)ptr, memPool, (CUmemPoolPtrExportData *)exportData));
}

/* ---- by place */

#if CUDART_VERSION >= 13000
API cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type)
{
	return rt_done(RT_CALL(cuMemGetDefaultMemPool, memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

API cudaError_t cudaMemGetMemPool(cudaMemPool_t *memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type)
{
	return rt_done(RT_CALL(cuMemGetMemPool, memPool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

API cudaError_t cudaMemSetMemPool(struct cudaMemLocation *location, enum cudaMemAllocationType type, cudaMemPool_t memPool)
{
	return rt_done(RT_CALL(cuMemSetMemPool, (CUmemLocation *)location, (CUmemAllocationType)type, memPool));
}
#endif
