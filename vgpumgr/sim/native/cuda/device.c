/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: count, names, ids and sizes. */
#include <stdio.h>
#include <string.h>

#include "cuda_sim.h"

/* Common start of the functions that ask one device for something. */
static CUresult device_enter(CUdevice dev, const void *out, struct device **found)
{
	CUresult r = driver_check();

	if (r != CUDA_SUCCESS)
		return r;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*found = device_find(dev);
	return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

#define DEVICE_ENTER(dev, out)                                  \
	struct device *d;                                       \
	do {                                                    \
		CUresult r_ = device_enter(dev, out, &d);       \
		if (r_ != CUDA_SUCCESS)                         \
			return r_;                              \
	} while (0)

CUresult cuDeviceGetCount(int *count)
{
	DRIVER_CHECK();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = drv.n_devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
	DEVICE_ENTER(ordinal, dev);
	*dev = d->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice dev)
{
	DEVICE_ENTER(dev, name);
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "%s", d->name);
	return CUDA_SUCCESS;
}

/* Of the GPU, also where the device is a MIG device; the second version names that. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	DEVICE_ENTER(dev, uuid);
	*uuid = d->gpu_uuid;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	DEVICE_ENTER(dev, uuid);
	*uuid = d->uuid;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	DEVICE_ENTER(dev, bytes);
	*bytes = d->total_bytes;
	return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	DEVICE_ENTER(dev, major);
	if (!minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = (int)d->info.cc_major;
	*minor = (int)d->info.cc_minor;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice dev)
{
	char text[32];
	int n;

	DEVICE_ENTER(dev, id);
	n = snprintf(text, sizeof(text), "%04X:%02X:%02X.0", d->info.pci_domain, d->info.pci_bus, d->info.pci_device);
	if (length <= n)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(id, text, (size_t)n + 1);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
	unsigned int part[4];
	CUresult r;

	DRIVER_CHECK();
	r = dev ? cuda_parse_pci_address(id, part) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (int i = 0; i < drv.n_devices; i++) {
		const struct sim_gpu *g = &drv.devices[i].info;

		if (g->pci_domain == part[0] && g->pci_bus == part[1] && g->pci_device == part[2] && !part[3]) {
			*dev = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

/* No limit on how SMs are shared out is offered. */
CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice dev)
{
	CUresult r = cuda_check_exec_affinity_type(type);

	DEVICE_ENTER(dev, value);
	if (r == CUDA_SUCCESS)
		*value = 0;
	return r;
}
