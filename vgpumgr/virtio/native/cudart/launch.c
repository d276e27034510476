/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches. */
#include "runtime.h"

/* The attributes pass to the driver as they are. */
_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "launch attributes");
_Static_assert(offsetof(cudaLaunchAttribute, val) == offsetof(CUlaunchAttribute, value), "launch attributes");

static bool exceeds(unsigned int value, CUdevice_attribute limit, CUdevice device)
{
	int most;

	return !value || (CU(cuDeviceGetAttribute, &most, limit, device) == CUDA_SUCCESS && value > (unsigned int)most);
}

/* No device could run it, whatever the kernel. */
static bool impossible(dim3 grid, dim3 block)
{
	CUdevice device;
	uint64_t threads = (uint64_t)block.x * block.y * block.z;

	if (rt_current_device(&device) != cudaSuccess)
		return false;
	return exceeds(grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device) ||
	       exceeds(grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device) ||
	       exceeds(grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, device) ||
	       exceeds(block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device) ||
	       exceeds(block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, device) ||
	       exceeds(block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device) ||
	       exceeds(threads > UINT32_MAX ? UINT32_MAX : (unsigned int)threads,
		       CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
}

/* The driver has one code for all bad arguments where the runtime has two. */
static cudaError_t launch_error(CUresult result, dim3 grid, dim3 block)
{
	if (result == CUDA_ERROR_INVALID_VALUE && impossible(grid, block))
		return cudaErrorInvalidConfiguration;
	return rt_error(result);
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream,
			  bool cooperative)
{
	CUfunction function;
	CUresult result;
	cudaError_t error = registry_function(host, &function);

	if (error != cudaSuccess)
		return error;
	if (shared > UINT32_MAX)
		return cudaErrorInvalidValue;
	if (cooperative)
		result = CU(cuLaunchCooperativeKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
			    (unsigned int)shared, stream, args);
	else
		result = CU(cuLaunchKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
			    (unsigned int)shared, stream, args, NULL);
	return launch_error(result, grid, block);
}

STREAM_API(cudaLaunchKernel,
	   (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
	   launch(func, gridDim, blockDim, args, sharedMem, stream, false))
STREAM_API(cudaLaunchCooperativeKernel,
	   (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
	   launch(func, gridDim, blockDim, args, sharedMem, stream, true))
/* What nvcc's stubs call from 12.9 and 13 on, with the handle of __cudaGetKernel(). */
STREAM_API(__cudaLaunchKernel,
	   (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
	   launch((const void *)kernel, gridDim, blockDim, args, sharedMem, stream, false))

static cudaError_t launch_extended(const cudaLaunchConfig_t *config, const void *host, void **args,
				   cudaStream_t stream)
{
	CUfunction function;
	CUlaunchConfig lowered;
	cudaError_t error;

	if (!config || config->dynamicSmemBytes > UINT32_MAX)
		return cudaErrorInvalidValue;
	if (!config->numAttrs)
		return launch(host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, stream, false);
	error = registry_function(host, &function);
	if (error != cudaSuccess)
		return error;
	lowered = (CUlaunchConfig){
		.gridDimX = config->gridDim.x, .gridDimY = config->gridDim.y, .gridDimZ = config->gridDim.z,
		.blockDimX = config->blockDim.x, .blockDimY = config->blockDim.y, .blockDimZ = config->blockDim.z,
		.sharedMemBytes = (unsigned int)config->dynamicSmemBytes, .hStream = stream,
		.attrs = (CUlaunchAttribute *)config->attrs, .numAttrs = config->numAttrs,
	};
	return launch_error(CU(cuLaunchKernelEx, &lowered, function, args, NULL), config->gridDim, config->blockDim);
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
	return rt_done(launch_extended(config, func, args, config ? config->stream : NULL));
}

API cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *func, void **args)
{
	return rt_done(launch_extended(config, func, args, config ? rt_thread_stream(config->stream) : NULL));
}

/* The driver's and the runtime's host functions have the same shape. */
STREAM_API(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
	   fn ? RT_CALL(cuLaunchHostFunc, stream, (CUhostFn)fn, userData) : cudaErrorInvalidValue)

#if CUDART_VERSION >= 13000
/* How the thread that runs the functions waits is its own. */
STREAM_API(cudaLaunchHostFunc_v2, (cudaStream_t stream, cudaHostFn_t fn, void *userData, unsigned int syncMode),
	   fn && syncMode <= CU_HOST_TASK_SPINWAIT ? RT_CALL(cuLaunchHostFunc, stream, (CUhostFn)fn, userData) : cudaErrorInvalidValue)
#endif
