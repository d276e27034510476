/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: one snapshot of each, asked for once; everything here is answered from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "faults.h"
#include "shim.h"

static _Atomic(struct shim_device *) devices[SHIM_DEVICES_MAX];

CUresult shim_device_count(uint32_t *count)
{
	unsigned channels = shim_channels();
	struct vg_snapshot_reply out;
	CUresult r;

	if (channels > 1) {
		*count = channels; /* each session sees its slice alone */
		return CUDA_SUCCESS;
	}
	r = vg_send_snapshot(&out);
	*count = out.device_count < SHIM_DEVICES_MAX ? out.device_count : SHIM_DEVICES_MAX;
	return r;
}

static struct shim_device *read_snapshot(const struct vg_device_snapshot_reply *out)
{
	struct shim_device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->total_bytes = out->total_bytes;
	memcpy(d->name, out->name, out->name_length < sizeof(d->name) ? out->name_length : sizeof(d->name) - 1);
	memcpy(d->pci_bus_id, out->pci_bus_id,
	       out->pci_bus_id_length < sizeof(d->pci_bus_id) ? out->pci_bus_id_length : sizeof(d->pci_bus_id) - 1);
	memcpy(&d->uuid, out->uuid, sizeof(d->uuid));
	d->attributes_count = out->attributes_length / sizeof(int);
	if (d->attributes_count > SHIM_ATTRIBUTES_MAX)
		d->attributes_count = SHIM_ATTRIBUTES_MAX;
	memcpy(d->attributes, out->attributes, d->attributes_count * sizeof(int));
	return d;
}

static CUresult fetch(CUdevice ordinal, const struct shim_device **device)
{
	SHIM_TURN(turn, shim_turn_to(ordinal));
	struct vg_device_snapshot_request in = { .ordinal = turn.ordinal };
	struct vg_device_snapshot_reply out;
	struct shim_device *d, *none = NULL;
	CUresult r = vg_send_device_snapshot(&in, &out);

	if (r != CUDA_SUCCESS)
		return r;
	d = read_snapshot(&out);
	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!atomic_compare_exchange_strong(&devices[ordinal], &none, d)) {
		free(d);
		d = none;
	}
	*device = d;
	return CUDA_SUCCESS;
}

/* Each launch asks for some attributes: what is known is answered before all else. */
CUresult shim_device(CUdevice ordinal, const struct shim_device **device)
{
	uint32_t count;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned)ordinal < SHIM_DEVICES_MAX) {
		*device = atomic_load_explicit(&devices[ordinal], memory_order_acquire);
		if (*device)
			return CUDA_SUCCESS;
	}
	r = shim_device_count(&count);
	if (r != CUDA_SUCCESS)
		return r;
	return ordinal >= 0 && (uint32_t)ordinal < count ? fetch(ordinal, device) : CUDA_ERROR_INVALID_DEVICE;
}

/* What this channel does not offer, whatever the worker's device can do. */
static bool hidden(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
	case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
	case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
	case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
		return true;
	default:
		return false;
	}
}

/* The older waits and writes of streams are done by the current ones, whatever the driver says of its own. */
static CUdevice_attribute current_form(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
		return CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
		return CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR;
	default:
		return attribute;
	}
}

int shim_attribute(CUdevice ordinal, CUdevice_attribute attribute)
{
	const struct shim_device *d;

	attribute = current_form(attribute);
	if ((attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY || attribute == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) &&
	    !faults_possible())
		return 0;
	if (hidden(attribute) || shim_device(ordinal, &d) != CUDA_SUCCESS || (int)attribute >= d->attributes_count)
		return 0;
	if (attribute == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) /* others are of several hosts */
		return d->attributes[attribute] & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return d->attributes[attribute];
}

SHIM_API CUresult cuDeviceGetCount(int *count)
{
	uint32_t found;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && !count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_device_count(&found);
	if (r == CUDA_SUCCESS)
		*count = found;
	return r;
}

SHIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	const struct shim_device *d;
	CUresult r = device ? shim_device(ordinal, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*device = ordinal;
	return r;
}

SHIM_API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = name && len > 0 ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		snprintf(name, len, "%s", d->name);
	return r;
}

SHIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = uuid ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*uuid = d->uuid;
	return r;
}

SHIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid(uuid, dev);
}

SHIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = bytes ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*bytes = d->total_bytes;
	return r;
}

SHIM_API CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = pi && (int)attrib > 0 ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS && (int)attrib >= d->attributes_count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*pi = shim_attribute(dev, attrib);
	return r;
}

SHIM_API CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = pciBusId && len > 0 ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		snprintf(pciBusId, len, "%s", d->pci_bus_id);
	return r;
}

SHIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned int wanted[4], is[4];
	const struct shim_device *d;
	uint32_t count;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = dev ? cuda_parse_pci_address(pciBusId, wanted) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_device_count(&count);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = shim_device(i, &d);
		if (r == CUDA_SUCCESS && cuda_parse_pci_address(d->pci_bus_id, is) == CUDA_SUCCESS &&
		    !memcmp(is, wanted, sizeof(is))) {
			*dev = i;
			return CUDA_SUCCESS;
		}
	}
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_DEVICE : r;
}

SHIM_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = major && minor ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	*major = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = prop ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
		.sharedMemPerBlock = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
		.totalConstantMemory = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
		.SIMDWidth = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
		.memPitch = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
		.regsPerBlock = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
		.clockRate = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
		.textureAlign = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
	};
	for (int i = 0; i < 3; i++) {
		prop->maxThreadsDim[i] = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
		prop->maxGridSize[i] = shim_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
	}
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	const struct shim_device *d;
	CUresult r = canAccessPeer ? shim_device(dev, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = shim_device(peerDev, &d);
	if (r == CUDA_SUCCESS)
		*canAccessPeer = 0;
	return r;
}

SHIM_API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
					  CUdevice dstDevice)
{
	CUresult r = cuda_check_peer_attribute(attrib, srcDevice, dstDevice);

	return r == CUDA_SUCCESS ? cuDeviceCanAccessPeer(value, srcDevice, dstDevice) : r;
}

SHIM_API CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = pi ? cuda_check_exec_affinity_type(type) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = shim_device(dev, &d);
	if (r == CUDA_SUCCESS)
		*pi = 0;
	return r;
}

/* Neither the guest's processor nor another device is behind a link that the device has. */
SHIM_API CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count,
						    CUdevice dev)
{
	const struct shim_device *d;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_atomic_operations(capabilities, operations, count);
	if (r == CUDA_SUCCESS)
		r = shim_device(dev, &d);
	if (r == CUDA_SUCCESS)
		memset(capabilities, 0, count * sizeof(*capabilities));
	return r;
}

SHIM_API CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count,
						   CUdevice srcDevice, CUdevice dstDevice)
{
	int none;
	CUresult r = cuDeviceGetP2PAttribute(&none, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, srcDevice, dstDevice);

	return r == CUDA_SUCCESS ? cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, srcDevice) : r;
}
