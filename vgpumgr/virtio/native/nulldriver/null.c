/* SPDX-License-Identifier: Apache-2.0 */
#include "../trydriver/start.h"
#include "books.h"

#include <cuda_rules.h>
#include <stdio.h>
#include <string.h>

/* ---- devices */

NULL_API CUresult cuInit(unsigned int flags)
{
	ENTER;
	return flags ? CUDA_ERROR_INVALID_VALUE : start_as_nvidias_driver();
}

NULL_API CUresult cuDriverGetVersion(int *version)
{
	ENTER;
	*version = 13000;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	(void)error;
	*name = "an error of the null driver";
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGetCount(int *count)
{
	ENTER;
	*count = 1;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER;
	*device = ordinal;
	return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	ENTER;
	(void)device;
	snprintf(name, length, "null device");
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER;
	(void)device;
	memcpy(uuid->bytes, "null-device-uuid", 16);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER;
	(void)device;
	*bytes = 1ull << 34;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	ENTER;
	(void)device;
	snprintf(id, length, "0000:01:00.0");
	return CUDA_SUCCESS;
}

NULL_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	static const int values[256] = {
		[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024,
		[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024,
		[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024,
		[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64,
		[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 2147483647,
		[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535,
		[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535,
		[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 49152,
		[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32,
		[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 4,
		[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 8,
		[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1,
		[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
		[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1,
	};

	ENTER;
	(void)device;
	if (attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = values[attribute];
	return CUDA_SUCCESS;
}

/* ---- contexts */

static __thread CUcontext current;

NULL_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER;
	(void)flags;
	(void)device;
	current = *context = null_object(NULL_CONTEXT);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxDestroy_v2(CUcontext context)
{
	null_wait(context);
	if (current == context)
		current = NULL;
	null_end(NULL_CONTEXT, context);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	current = context;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	*context = current;
	current = NULL;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	*version = 13000;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER;
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxSynchronize(void)
{
	ENTER;
	null_check(NULL_CONTEXT, current);
	null_wait(current);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	ENTER;
	(void)value;
	return limit < CU_LIMIT_MAX ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

NULL_API CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	ENTER;
	*value = 1024;
	return limit < CU_LIMIT_MAX ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

/* ---- memory */

NULL_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER;
	*free_bytes = 1ull << 33;
	*total = 1ull << 34;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	ENTER;
	*address = (CUdeviceptr)null_memory(current, bytes);
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

NULL_API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	*address = (CUdeviceptr)null_memory(current, bytes);
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- pools: one of the device, which is no object of anybody's, and those that are made */

static char device_pool;

static void check_pool(CUmemoryPool pool)
{
	if ((void *)pool != &device_pool)
		null_check(NULL_POOL, pool);
}

NULL_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	ENTER;
	(void)device;
	*pool = (CUmemoryPool)&device_pool;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
	ENTER;
	(void)properties;
	*pool = null_object(NULL_POOL);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	null_end(NULL_POOL, pool);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	ENTER;
	(void)keep;
	check_pool(pool);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER;
	(void)attribute;
	check_pool(pool);
	*(cuuint64_t *)value = 1;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER;
	(void)attribute;
	(void)value;
	check_pool(pool);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	check_pool(pool);
	return cuMemAllocAsync(address, bytes, stream);
}

/* ---- memory again */

NULL_API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int n)
{
	size_t bytes;

	ENTER;
	(void)n;
	if (width > 1ull << 40)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pitch = (width + 511) & ~511ull;
	if (__builtin_mul_overflow(*pitch, height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = (CUdeviceptr)null_memory(current, bytes);
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

NULL_API CUresult cuMemFree_v2(CUdeviceptr address)
{
	null_wait(null_memory_context(address));
	null_memory_end(address);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	null_memory_end(address);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	null_check_memory(to, bytes);
	if (bytes)
		memcpy((void *)to, from, bytes);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	null_check_memory(from, bytes);
	if (bytes)
		memcpy(to, (void *)from, bytes);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	null_check_memory(to, bytes);
	null_check_memory(from, bytes);
	if (bytes) /* an empty copy may be from nowhere */
		memmove((void *)to, (void *)from, bytes);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
	size_t to_bytes = c->Height ? (c->Height - 1) * c->dstPitch + c->WidthInBytes : 0;
	size_t from_bytes = c->Height ? (c->Height - 1) * c->srcPitch + c->WidthInBytes : 0;
	char *to = c->dstMemoryType == CU_MEMORYTYPE_HOST ? c->dstHost : (char *)c->dstDevice;
	const char *from = c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (const char *)c->srcDevice;

	ENTER;
	null_check_stream(stream);
	if (!c->WidthInBytes || !c->Height)
		return CUDA_SUCCESS;
	if (c->dstMemoryType == CU_MEMORYTYPE_DEVICE)
		null_check_memory(c->dstDevice, to_bytes);
	if (c->srcMemoryType == CU_MEMORYTYPE_DEVICE)
		null_check_memory(c->srcDevice, from_bytes);
	for (size_t y = 0; y < c->Height; y++)
		memmove(to + y * c->dstPitch, from + y * c->srcPitch, c->WidthInBytes);
	return CUDA_SUCCESS;
}

#define MEMSET(name, type)                                                                                             \
	NULL_API CUresult name(CUdeviceptr to, type value, size_t count, CUstream stream)                              \
	{                                                                                                              \
		ENTER;                                                                                                 \
		null_check_stream(stream);                                                                             \
		null_check_memory(to, count * sizeof(type));                                                           \
		for (size_t i = 0; i < count; i++)                                                                     \
			memcpy((char *)to + i * sizeof(type), &value, sizeof(type));                                   \
		return CUDA_SUCCESS;                                                                                   \
	}

#define MEMSET_2D(name, type)                                                                                          \
	NULL_API CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) \
	{                                                                                                              \
		ENTER;                                                                                                 \
		null_check_stream(stream);                                                                             \
		if (!width || !height)                                                                                 \
			return CUDA_SUCCESS;                                                                           \
		null_check_memory(to, (height - 1) * pitch + width * sizeof(type));                                    \
		for (size_t y = 0; y < height; y++)                                                                    \
			for (size_t x = 0; x < width; x++)                                                             \
				memcpy((char *)to + y * pitch + x * sizeof(type), &value, sizeof(type));               \
		return CUDA_SUCCESS;                                                                                   \
	}

MEMSET(cuMemsetD8Async, unsigned char)
MEMSET(cuMemsetD16Async, unsigned short)
MEMSET(cuMemsetD32Async, unsigned int)
MEMSET_2D(cuMemsetD2D8Async, unsigned char)
MEMSET_2D(cuMemsetD2D16Async, unsigned short)
MEMSET_2D(cuMemsetD2D32Async, unsigned int)

/* ---- streams and events: all work is done when it is called, so everything is always complete */

NULL_API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER;
	(void)flags;
	(void)priority;
	*stream = null_object(NULL_STREAM);
	null_kept(*stream)[0] = current;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	ENTER;
	(void)stream;
	(void)id;
	(void)value;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamDestroy_v2(CUstream stream)
{
	null_end(NULL_STREAM, stream);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamQuery(CUstream stream)
{
	ENTER;
	null_check_stream(stream);
	if (!stream || !null_is_marked(stream))
		return CUDA_SUCCESS;
	null_mark(stream, -1); /* its capture is of no use any more: see graphs.c */
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUcontext context_of(CUstream stream)
{
	null_check_stream(stream);
	return stream ? null_kept(stream)[0] : current;
}

NULL_API CUresult cuStreamSynchronize(CUstream stream)
{
	ENTER;
	null_wait(context_of(stream));
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	ENTER;
	(void)flags;
	null_check_stream(stream);
	null_check(NULL_EVENT, event);
	return CUDA_SUCCESS;
}

void null_check_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags)
{
	struct cuda_memory_operation m;

	if (cuda_check_memory_operations(list, count, flags) != CUDA_SUCCESS)
		null_abort("a batch of operations in memory");
	for (unsigned int i = 0; i < count; i++) {
		if (cuda_read_memory_operation(&list[i], false, &m) != CUDA_SUCCESS)
			null_abort("an operation in memory");
		if (m.bytes)
			null_check_memory(m.address, m.bytes);
	}
}

/* A wait is met when it is put into the stream. */
NULL_API CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags)
{
	ENTER;
	null_check_stream(stream);
	null_check_operations(list, count, flags);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	ENTER;
	null_check_stream(stream);
	if (stream && null_is_marked(stream)) /* it is captured */
		return CUDA_SUCCESS;
	return null_host_function(context_of(stream), function, data);
}

NULL_API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	ENTER;
	(void)flags;
	*event = null_object(NULL_EVENT);
	null_kept(*event)[0] = current;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuEventDestroy_v2(CUevent event)
{
	null_end(NULL_EVENT, event);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	ENTER;
	(void)flags;
	null_check(NULL_EVENT, event);
	return null_kept(event)[0] == context_of(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

NULL_API CUresult cuEventQuery(CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuEventSynchronize(CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	null_wait(null_kept(event)[0]); /* whichever context is current */
	return CUDA_SUCCESS;
}

NULL_API CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	ENTER;
	null_check(NULL_EVENT, start);
	null_check(NULL_EVENT, end);
	*ms = 0;
	return CUDA_SUCCESS;
}
