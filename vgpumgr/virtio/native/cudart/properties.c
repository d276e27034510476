/* SPDX-License-Identifier: Apache-2.0 */
/* cudaDeviceProp, in the layout of this version's header, filled from the driver's attributes. */
#include <string.h>

#include "runtime.h"

/* The layouts that programs of these versions were compiled with. */
#if CUDART_VERSION >= 13000
_Static_assert(sizeof(struct cudaDeviceProp) == 1008, "cudaDeviceProp of CUDA 13");
#else
_Static_assert(sizeof(struct cudaDeviceProp) == 1032, "cudaDeviceProp of CUDA 12");
#endif

struct field {
	CUdevice_attribute attribute;
	uint16_t offset, size; /* size: that of an int or of a size_t */
};

#define FIELD(member, name)                                                                        \
	{                                                                                          \
		CU_DEVICE_ATTRIBUTE_##name, offsetof(struct cudaDeviceProp, member),               \
			sizeof(((struct cudaDeviceProp *)NULL)->member)                            \
	}
#define FIELD2(member, name, a, b) FIELD(member[0], name##_##a), FIELD(member[1], name##_##b)
#define FIELD3(member, name, a, b, c) FIELD2(member, name, a, b), FIELD(member[2], name##_##c)

static const struct field fields[] = {
	FIELD(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
	FIELD(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
	FIELD(warpSize, WARP_SIZE),
	FIELD(memPitch, MAX_PITCH),
	FIELD(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
	FIELD(maxThreadsDim[0], MAX_BLOCK_DIM_X),
	FIELD(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
	FIELD(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
	FIELD(maxGridSize[0], MAX_GRID_DIM_X),
	FIELD(maxGridSize[1], MAX_GRID_DIM_Y),
	FIELD(maxGridSize[2], MAX_GRID_DIM_Z),
	FIELD(totalConstMem, TOTAL_CONSTANT_MEMORY),
	FIELD(major, COMPUTE_CAPABILITY_MAJOR),
	FIELD(minor, COMPUTE_CAPABILITY_MINOR),
	FIELD(textureAlignment, TEXTURE_ALIGNMENT),
	FIELD(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
	FIELD(multiProcessorCount, MULTIPROCESSOR_COUNT),
	FIELD(integrated, INTEGRATED),
	FIELD(canMapHostMemory, CAN_MAP_HOST_MEMORY),
	FIELD(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
	FIELD(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
	FIELD2(maxTexture2D, MAXIMUM_TEXTURE2D, WIDTH, HEIGHT),
	FIELD2(maxTexture2DMipmap, MAXIMUM_TEXTURE2D_MIPMAPPED, WIDTH, HEIGHT),
	FIELD3(maxTexture2DLinear, MAXIMUM_TEXTURE2D_LINEAR, WIDTH, HEIGHT, PITCH),
	FIELD2(maxTexture2DGather, MAXIMUM_TEXTURE2D_GATHER, WIDTH, HEIGHT),
	FIELD3(maxTexture3D, MAXIMUM_TEXTURE3D, WIDTH, HEIGHT, DEPTH),
	FIELD3(maxTexture3DAlt, MAXIMUM_TEXTURE3D, WIDTH_ALTERNATE, HEIGHT_ALTERNATE, DEPTH_ALTERNATE),
	FIELD(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
	FIELD2(maxTexture1DLayered, MAXIMUM_TEXTURE1D_LAYERED, WIDTH, LAYERS),
	FIELD3(maxTexture2DLayered, MAXIMUM_TEXTURE2D_LAYERED, WIDTH, HEIGHT, LAYERS),
	FIELD2(maxTextureCubemapLayered, MAXIMUM_TEXTURECUBEMAP_LAYERED, WIDTH, LAYERS),
	FIELD(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
	FIELD2(maxSurface2D, MAXIMUM_SURFACE2D, WIDTH, HEIGHT),
	FIELD3(maxSurface3D, MAXIMUM_SURFACE3D, WIDTH, HEIGHT, DEPTH),
	FIELD2(maxSurface1DLayered, MAXIMUM_SURFACE1D_LAYERED, WIDTH, LAYERS),
	FIELD3(maxSurface2DLayered, MAXIMUM_SURFACE2D_LAYERED, WIDTH, HEIGHT, LAYERS),
	FIELD(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
	FIELD2(maxSurfaceCubemapLayered, MAXIMUM_SURFACECUBEMAP_LAYERED, WIDTH, LAYERS),
	FIELD(surfaceAlignment, SURFACE_ALIGNMENT),
	FIELD(concurrentKernels, CONCURRENT_KERNELS),
	FIELD(ECCEnabled, ECC_ENABLED),
	FIELD(pciBusID, PCI_BUS_ID),
	FIELD(pciDeviceID, PCI_DEVICE_ID),
	FIELD(pciDomainID, PCI_DOMAIN_ID),
	FIELD(tccDriver, TCC_DRIVER),
	FIELD(asyncEngineCount, ASYNC_ENGINE_COUNT),
	FIELD(unifiedAddressing, UNIFIED_ADDRESSING),
	FIELD(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
	FIELD(l2CacheSize, L2_CACHE_SIZE),
	FIELD(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
	FIELD(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
	FIELD(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
	FIELD(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
	FIELD(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
	FIELD(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
	FIELD(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
	FIELD(managedMemory, MANAGED_MEMORY),
	FIELD(isMultiGpuBoard, MULTI_GPU_BOARD),
	FIELD(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
	FIELD(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
	FIELD(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
	FIELD(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
	FIELD(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
	FIELD(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
	FIELD(cooperativeLaunch, COOPERATIVE_LAUNCH),
	FIELD(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
	FIELD(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
	FIELD(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
	FIELD(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
	FIELD(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
	FIELD(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
	FIELD(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
	FIELD(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
	FIELD(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
	FIELD(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
	FIELD(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
	FIELD(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
	FIELD(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
	FIELD(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
	FIELD(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
	FIELD(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
	FIELD(ipcEventSupported, IPC_EVENT_SUPPORTED),
	FIELD(clusterLaunch, CLUSTER_LAUNCH),
	FIELD(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
#if CUDART_VERSION >= 13000
	FIELD(deviceNumaConfig, NUMA_CONFIG),
	FIELD(deviceNumaId, NUMA_ID),
	FIELD(mpsEnabled, MPS_ENABLED),
	FIELD(hostNumaId, HOST_NUMA_ID),
	FIELD(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
	FIELD(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
	FIELD(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
#else
	FIELD(clockRate, CLOCK_RATE),
	FIELD(deviceOverlap, GPU_OVERLAP),
	FIELD(kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT),
	FIELD(computeMode, COMPUTE_MODE),
	FIELD(maxTexture1DLinear, MAXIMUM_TEXTURE1D_LINEAR_WIDTH),
	FIELD(memoryClockRate, MEMORY_CLOCK_RATE),
	FIELD(singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO),
	FIELD(cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH),
#endif
};

static void store(struct cudaDeviceProp *prop, const struct field *field, int value)
{
	char *member = (char *)prop + field->offset;

	if (field->size == sizeof(int))
		memcpy(member, &value, sizeof(value));
	else
		memcpy(member, &(size_t){ (size_t)value }, sizeof(size_t));
}

static cudaError_t fill(struct cudaDeviceProp *prop, CUdevice device)
{
	cudaError_t error;

	memset(prop, 0, sizeof(*prop));
	error = rt_error(CU(cuDeviceGetName, prop->name, sizeof(prop->name), device));
	/* the second version names the MIG instance, where the first named its GPU */
	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceGetUuid_v2, (CUuuid *)&prop->uuid, device));
	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceTotalMem, &prop->totalGlobalMem, device));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && error == cudaSuccess; i++) {
		int value = 0;
		CUresult result = CU(cuDeviceGetAttribute, &value, fields[i].attribute, device);

		/* An attribute that an older driver does not know yet is a feature that it does not have. */
		if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_NOT_SUPPORTED)
			error = rt_error(result);
		store(prop, &fields[i], value);
	}
	return error;
}

static cudaError_t get_properties(struct cudaDeviceProp *prop, int ordinal)
{
	CUdevice device;
	cudaError_t error = prop ? rt_device(ordinal, &device) : cudaErrorInvalidValue;

	return error != cudaSuccess ? error : fill(prop, device);
}

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	return rt_done(get_properties(prop, device));
}

/* How much of what is asked for a device has: compute capability first, then memory, then processors. */
static int match(const struct cudaDeviceProp *wanted, const struct cudaDeviceProp *have)
{
	int score = 0;

	if (have->major > wanted->major || (have->major == wanted->major && have->minor >= wanted->minor))
		score += 4;
	if (have->totalGlobalMem >= wanted->totalGlobalMem)
		score += 2;
	if (have->multiProcessorCount >= wanted->multiProcessorCount)
		score += 1;
	return score;
}

static cudaError_t choose_device(int *out, const struct cudaDeviceProp *wanted)
{
	struct cudaDeviceProp have;
	int count, best = -1;
	cudaError_t error = out && wanted ? cudaGetDeviceCount(&count) : cudaErrorInvalidValue;

	for (int i = 0; error == cudaSuccess && i < count; i++) {
		error = get_properties(&have, i);
		if (error == cudaSuccess && match(wanted, &have) > best) {
			best = match(wanted, &have);
			*out = i;
		}
	}
	return error;
}

API cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *prop)
{
	return rt_done(choose_device(device, prop));
}
