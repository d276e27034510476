/* SPDX-License-Identifier: Apache-2.0 */
/* Filling device memory. */
#include "runtime.h"

static cudaError_t set(void *ptr, int value, size_t count, struct lane lane)
{
	if (!count)
		return cudaSuccess;
	if (lane.wait == LANE_LEGACY)
		return RT_CALL(cuMemsetD8, (CUdeviceptr)ptr, (unsigned char)value, count);
	return RT_CALL(cuMemsetD8Async, (CUdeviceptr)ptr, (unsigned char)value, count, lane.stream);
}

BLOCKING_API(cudaMemset, (void *devPtr, int value, size_t count), set(devPtr, value, count, lane))
ASYNC_API(cudaMemsetAsync, (void *devPtr, int value, size_t count, cudaStream_t stream),
	  set(devPtr, value, count, lane))

static cudaError_t set_2d(void *ptr, size_t pitch, int value, size_t width, size_t height, struct lane lane)
{
	if (!width || !height)
		return cudaSuccess;
	if (lane.wait == LANE_LEGACY)
		return RT_CALL(cuMemsetD2D8, (CUdeviceptr)ptr, pitch, (unsigned char)value, width, height);
	return RT_CALL(cuMemsetD2D8Async, (CUdeviceptr)ptr, pitch, (unsigned char)value, width, height, lane.stream);
}

BLOCKING_API(cudaMemset2D, (void *devPtr, size_t pitch, int value, size_t width, size_t height),
	     set_2d(devPtr, pitch, value, width, height, lane))
ASYNC_API(cudaMemset2DAsync,
	  (void *devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
	  set_2d(devPtr, pitch, value, width, height, lane))

/* Slices that follow one another without a gap are one tall rectangle. */
static cudaError_t set_3d(struct cudaPitchedPtr to, int value, struct cudaExtent extent, struct lane lane)
{
	cudaError_t error = cudaSuccess;
	size_t rows;

	if (extent.height > to.ysize || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return cudaErrorInvalidValue;
	if (extent.height == to.ysize)
		return set_2d(to.ptr, to.pitch, value, extent.width, rows, lane);
	for (size_t z = 0; z < extent.depth && error == cudaSuccess; z++)
		error = set_2d((char *)to.ptr + z * to.pitch * to.ysize, to.pitch, value, extent.width,
			       extent.height, lane);
	return error;
}

BLOCKING_API(cudaMemset3D, (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent),
	     set_3d(pitchedDevPtr, value, extent, lane))
ASYNC_API(cudaMemset3DAsync,
	  (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent, cudaStream_t stream),
	  set_3d(pitchedDevPtr, value, extent, lane))
