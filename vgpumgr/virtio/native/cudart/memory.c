/* SPDX-License-Identifier: Apache-2.0 */
/* Device and host memory: allocate, release, ask. */
#include <string.h>

#include "runtime.h"

static cudaError_t allocate(void **out, size_t size)
{
	CUdeviceptr address = 0;
	cudaError_t error = out ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	/* nothing asked for is a success with no address, where the driver's call would refuse it */
	error = size ? rt_error(CU(cuMemAlloc, &address, size)) : cudaSuccess;
	if (error == cudaSuccess)
		*out = (void *)address;
	return error;
}

API cudaError_t cudaMalloc(void **devPtr, size_t size)
{
	return rt_done(allocate(devPtr, size));
}

/* 16: the largest element of a coalesced access. */
static cudaError_t allocate_pitch(void **out, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr address = 0;
	cudaError_t error = out && pitch ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	if (!width || !height) {
		*out = NULL;
		*pitch = 0;
		return cudaSuccess;
	}
	error = rt_error(CU(cuMemAllocPitch, &address, pitch, width, height, 16));
	if (error == cudaSuccess)
		*out = (void *)address;
	return error;
}

API cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
	return rt_done(allocate_pitch(devPtr, pitch, width, height));
}

static cudaError_t allocate_3d(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
	size_t rows;
	cudaError_t error;

	if (!out || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return cudaErrorInvalidValue;
	error = allocate_pitch(&out->ptr, &out->pitch, extent.width, rows);
	if (error == cudaSuccess) {
		out->xsize = extent.width;
		out->ysize = extent.height;
	}
	return error;
}

API cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
	return rt_done(allocate_3d(pitchedDevPtr, extent));
}

/* Null initialises the device, as programs rely on. */
static cudaError_t release(void *ptr)
{
	return ptr ? RT_CALL(cuMemFree, (CUdeviceptr)ptr) : rt_enter();
}

API cudaError_t cudaFree(void *devPtr)
{
	return rt_done(release(devPtr));
}

static cudaError_t allocate_host(void **out, size_t size, unsigned int flags)
{
	cudaError_t error = out ? rt_enter() : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	*out = NULL;
	return size ? rt_error(CU(cuMemHostAlloc, out, size, flags)) : cudaSuccess;
}

API cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
	return rt_done(allocate_host(pHost, size, flags));
}

API cudaError_t cudaMallocHost(void **ptr, size_t size)
{
	return rt_done(allocate_host(ptr, size, cudaHostAllocDefault));
}

API cudaError_t cudaFreeHost(void *ptr)
{
	return rt_done(ptr ? RT_CALL(cuMemFreeHost, ptr) : rt_enter());
}

API cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
	return rt_done(RT_CALL(cuMemHostRegister, ptr, size, flags));
}

API cudaError_t cudaHostUnregister(void *ptr)
{
	return rt_done(RT_CALL(cuMemHostUnregister, ptr));
}

static cudaError_t host_device_pointer(void **out, void *host, unsigned int flags)
{
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!out)
		return cudaErrorInvalidValue;
	error = RT_CALL(cuMemHostGetDevicePointer, &address, host, flags);
	if (error == cudaSuccess)
		*out = (void *)address;
	return error;
}

API cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
	return rt_done(host_device_pointer(pDevice, pHost, flags));
}

API cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
	return rt_done(pFlags ? RT_CALL(cuMemHostGetFlags, pFlags, pHost) : cudaErrorInvalidValue);
}

API cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
	return rt_done(free && total ? RT_CALL(cuMemGetInfo, free, total) : cudaErrorInvalidValue);
}

static enum cudaMemoryType memory_type(unsigned int driver_type, unsigned int managed)
{
	if (managed)
		return cudaMemoryTypeManaged;
	switch (driver_type) {
	case CU_MEMORYTYPE_HOST:
		return cudaMemoryTypeHost;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_ARRAY:
		return cudaMemoryTypeDevice;
	default:
		return cudaMemoryTypeUnregistered;
	}
}

static cudaError_t pointer_attributes(struct cudaPointerAttributes *out, const void *ptr)
{
	unsigned int type = 0, managed = 0;
	CUdevice device = -2; /* "no device", as for memory that CUDA does not know */
	void *on_device = NULL, *on_host = NULL;
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
					CU_POINTER_ATTRIBUTE_HOST_POINTER };
	void *values[] = { &type, &managed, &device, &on_device, &on_host };
	cudaError_t error;

	if (!out)
		return cudaErrorInvalidValue;
	error = RT_CALL(cuPointerGetAttributes, 5, names, values, (CUdeviceptr)ptr);
	if (error != cudaSuccess)
		return error;
	memset(out, 0, sizeof(*out));
	out->type = memory_type(type, managed);
	out->device = out->type == cudaMemoryTypeUnregistered ? -2 : device;
	out->devicePointer = on_device;
	out->hostPointer = out->type == cudaMemoryTypeUnregistered ? (void *)ptr : on_host;
	return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	return rt_done(pointer_attributes(attributes, ptr));
}
