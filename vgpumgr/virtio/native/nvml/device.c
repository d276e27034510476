/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are, and what each is. */
#include <cuda.h>
#include <cuda_rules.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml_guest.h"

static nvmlReturn_t put_uint(unsigned int *to, unsigned int value)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	*to = value;
	return NVML_SUCCESS;
}

static nvmlReturn_t put_gpu(nvmlDevice_t *to, struct gpu *g, nvmlReturn_t otherwise)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (g)
		*to = (nvmlDevice_t)(void *)g;
	return g ? NVML_SUCCESS : otherwise;
}

/* ---- which */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	NVML_ENTER();
	return put_uint(count, gpus_count());
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	NVML_ENTER();
	return put_gpu(device, gpus_at(index), NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct gpu *found = NULL;

	NVML_ENTER();
	if (!uuid)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < gpus_count() && !found; i++)
		if (!strcasecmp(gpus_at(i)->uuid, uuid))
			found = gpus_at(i);
	return put_gpu(device, found, NVML_ERROR_NOT_FOUND);
}

/* Slices of one GPU have its address; the first of them answers to it. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device)
{
	struct gpu *found = NULL;
	unsigned int part[4];

	NVML_ENTER();
	if (!address || cuda_parse_pci_address(address, part) != CUDA_SUCCESS)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < gpus_count() && !found; i++)
		if (!memcmp(gpus_at(i)->pci, part, sizeof(part)))
			found = gpus_at(i);
	return put_gpu(device, found, NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	NVML_ENTER_GPU(g, device);
	return put_uint(index, g->index);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *number)
{
	NVML_ENTER_GPU(g, device);
	return put_uint(number, g->index);
}

/* A slice stands for a GPU here: programs would look for the GPU of an instance, which the guest does not have. */
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
	NVML_ENTER_GPU(g, device);
	(void)g;
	return put_uint(is, 0);
}

/* ---- what */

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	NVML_ENTER_GPU(g, device);
	return nvml_put_text(name, length, (const char *)g->is.name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	NVML_ENTER_GPU(g, device);
	return nvml_put_text(uuid, length, g->uuid);
}

static void fill_pci(const struct gpu *g, nvmlPciInfo_t *pci)
{
	*pci = (nvmlPciInfo_t){ .domain = g->pci[0], .bus = g->pci[1], .device = g->pci[2] };
	snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", g->pci[0], g->pci[1] & 0xff, g->pci[2] & 0xff);
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", g->pci[0] & 0xffff, g->pci[1] & 0xff,
		 g->pci[2] & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	NVML_ENTER_GPU(g, device);
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	fill_pci(g, pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	NVML_ENTER_GPU(g, device);
	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = gpu_attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = gpu_attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture)
{
	static const struct {
		int capability;
		nvmlDeviceArchitecture_t is;
	} all[] = {
		{ 100, NVML_DEVICE_ARCH_BLACKWELL }, { 90, NVML_DEVICE_ARCH_HOPPER }, { 89, NVML_DEVICE_ARCH_ADA },
		{ 80, NVML_DEVICE_ARCH_AMPERE },     { 75, NVML_DEVICE_ARCH_TURING }, { 70, NVML_DEVICE_ARCH_VOLTA },
		{ 60, NVML_DEVICE_ARCH_PASCAL },
	};
	int capability;

	NVML_ENTER_GPU(g, device);
	if (!architecture)
		return NVML_ERROR_INVALID_ARGUMENT;
	capability = 10 * gpu_attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
		     gpu_attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	*architecture = NVML_DEVICE_ARCH_UNKNOWN;
	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (capability >= all[i].capability) {
			*architecture = all[i].is;
			break;
		}
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	NVML_ENTER_GPU(g, device);
	(void)g;
	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mode = NVML_COMPUTEMODE_DEFAULT;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	CUdevice_attribute attribute;

	NVML_ENTER_GPU(g, device);
	if (type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	attribute = type == NVML_CLOCK_MEM ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE : CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
	return put_uint(mhz, (unsigned int)gpu_attribute(g, attribute) / 1000);
}
