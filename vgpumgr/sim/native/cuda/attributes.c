/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDeviceGetAttribute. Limits per architecture are those of the tables in NVIDIA's CUDA programming guide (compute
 * capabilities) and tuning guides; sizes, clocks and ids come from the machine. What the simulator cannot do is 0.
 */
#include "cuda_sim.h"

static const struct arch_limits limits[] = {
	/* cc, shared memory per SM and per block (opt-in), threads and blocks per SM, L2, bus, FP32:FP64, copy engines */
	{ 75, 64 << 10, 64 << 10, 1024, 16, 6144, 256, 32, 3 },
	{ 80, 164 << 10, 163 << 10, 2048, 32, 40960, 5120, 2, 3 },
	{ 86, 100 << 10, 99 << 10, 1536, 16, 6144, 384, 32, 2 },
	{ 89, 100 << 10, 99 << 10, 1536, 24, 98304, 384, 64, 2 },
	{ 90, 228 << 10, 227 << 10, 2048, 32, 51200, 5120, 2, 3 },
	{ 100, 228 << 10, 227 << 10, 2048, 32, 129024, 8192, 2, 4 },
	{ 120, 100 << 10, 99 << 10, 1536, 24, 131072, 512, 64, 2 },
};

const struct arch_limits *arch_limits(const struct device *dev)
{
	uint32_t cc = dev->info.cc_major * 10 + dev->info.cc_minor;
	size_t best = 0;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		if (limits[i].cc <= cc)
			best = i;
	}
	return &limits[best];
}

struct constant {
	CUdevice_attribute attribute;
	int value;
};

/* The same on every device that the simulator knows. */
static const struct constant constants[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_PER_BLOCK },
	{ CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, WARP_SIZE },
	{ CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, REGISTERS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS_PER_SM },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32 },
	{ CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR },
	{ CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1 },
	{ CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, SHARED_RESERVED },
	{ CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20 },
	{ CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 1 << 28 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768 },
	{ CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048 },
};

static bool find_constant(CUdevice_attribute attribute, int *value)
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		if (constants[i].attribute == attribute) {
			*value = constants[i].value;
			return true;
		}
	}
	return false;
}

/* L2 is split with the memory: an instance has its share. */
static int l2_bytes(const struct device *dev)
{
	uint64_t whole = (uint64_t)arch_limits(dev)->l2_kib << 10;

	if (dev->gi_id < 0 || !dev->info.memory_bytes)
		return (int)whole;
	return (int)(whole * (dev->total_bytes >> 20) / (dev->info.memory_bytes >> 20));
}

static int copy_engines(const struct device *dev)
{
	if (dev->gi_id >= 0)
		return (int)dev->copy_engines;
	return arch_limits(dev)->copy_engines;
}

static int of_architecture(const struct device *dev, CUdevice_attribute attribute)
{
	const struct arch_limits *a = arch_limits(dev);

	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return a->shared_per_sm;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return a->shared_optin;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return a->threads_per_sm;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
		return a->blocks_per_sm;
	case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
		return a->dp_ratio;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return dev->info.memory_bus_bits ? (int)dev->info.memory_bus_bits : a->bus_bits;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return l2_bytes(dev);
	case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
		return l2_bytes(dev) / 4 * 3;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return copy_engines(dev);
	case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
		return a->cc >= 10 * CLUSTERS_FROM_CC;
	default:
		return 0;
	}
}

static bool of_machine(const struct device *dev, CUdevice_attribute attribute, int *value)
{
	const struct sim_gpu *g = &dev->info;

	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = (int)g->cc_major;
		return true;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = (int)g->cc_minor;
		return true;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)dev->sm_count;
		return true;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		*value = (int)g->sm_clock_mhz * 1000;
		return true;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		*value = (int)g->mem_clock_mhz * 1000;
		return true;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*value = (int)g->pci_domain;
		return true;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = (int)g->pci_bus;
		return true;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*value = (int)g->pci_device;
		return true;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
		*value = (int)g->pci_device_id;
		return true;
	case CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID:
		*value = (int)g->pci_subsystem_id;
		return true;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = g->numa_node;
		return true;
	case CU_DEVICE_ATTRIBUTE_NUMA_ID:
		*value = -1; /* the GPU's memory is no NUMA node of the host */
		return true;
	case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
		*value = g->ecc_current;
		return true;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
		*value = (int)g->compute_mode;
		return true;
	default:
		return false;
	}
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	struct device *d;

	DRIVER_CHECK();
	d = device_find(dev);
	if (!value || (int)attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!find_constant(attribute, value) && !of_machine(d, attribute, value))
		*value = of_architecture(d, attribute);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *p, CUdevice dev)
{
	struct device *d;

	DRIVER_CHECK();
	d = device_find(dev);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	*p = (CUdevprop){
		.maxThreadsPerBlock = MAX_THREADS_PER_BLOCK,
		.maxThreadsDim = { 1024, 1024, 64 },
		.maxGridSize = { INT32_MAX, 65535, 65535 },
		.sharedMemPerBlock = SHARED_PER_BLOCK,
		.totalConstantMemory = 65536,
		.SIMDWidth = WARP_SIZE,
		.memPitch = INT32_MAX,
		.regsPerBlock = REGISTERS_PER_SM,
		.clockRate = (int)d->info.sm_clock_mhz * 1000,
		.textureAlign = 512,
	};
	return CUDA_SUCCESS;
}
