/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are, and what never changes about them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nvml_sim.h"

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	VIEW_MACHINE(v);
	return put_uint(deviceCount, sim_gpus_before(v.m, v.m->n_gpus));
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	int gpu;
	VIEW_MACHINE(v);

	gpu = sim_nth_gpu(v.m, index);
	if (!device || gpu < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (v.m->gpus[gpu].lost)
		return NVML_ERROR_GPU_IS_LOST;
	*device = gpu_handle((uint32_t)gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	VIEW_MACHINE(v);

	if (!serial || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < v.m->n_gpus; i++) {
		if (!v.m->gpus[i].detached && !strcmp(v.m->gpus[i].serial, serial)) {
			*device = gpu_handle(i);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

static nvmlDevice_t find_mig_uuid(const struct sim_machine *m, uint32_t gpu, const char *uuid)
{
	for (uint32_t g = 0; g < SIM_MAX_GI; g++) {
		const struct sim_gi *gi = &m->gpus[gpu].gi[g];

		for (uint32_t c = 0; gi->used && c < SIM_MAX_CI; c++)
			if (gi->ci[c].used && !strcasecmp(gi->ci[c].uuid, uuid))
				return mig_handle(gpu, gi, &gi->ci[c]);
	}
	return NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	VIEW_MACHINE(v);

	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < v.m->n_gpus; i++) {
		nvmlDevice_t found = strcasecmp(v.m->gpus[i].uuid, uuid) ? find_mig_uuid(v.m, i, uuid) : gpu_handle(i);

		if (found && !v.m->gpus[i].detached) {
			*device = found;
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	if (!uuid)
		return nvmlDeviceGetHandleByUUID(NULL, device);
	if (uuid->version != nvmlUUID_v1)
		return nvml_refuse(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	if (uuid->type != NVML_UUID_TYPE_ASCII)
		return nvml_not_offered();
	return nvmlDeviceGetHandleByUUID(uuid->value.str, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	unsigned int domain = 0, bus, slot, function = 0;
	VIEW_MACHINE(v);

	if (!pciBusId || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = 0;
		if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (uint32_t i = 0; i < v.m->n_gpus; i++) {
		const struct sim_gpu *g = &v.m->gpus[i];

		if (g->pci_domain == domain && g->pci_bus == bus && g->pci_device == slot && !function &&
		    !g->detached) {
			*device = gpu_handle(i);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	char profile[SIM_NAME + 8], text[2 * SIM_NAME + 16];
	VIEW_DEVICE(v, device);

	if (!v.gi)
		return put_text(name, length, v.gpu->name);
	mig_profile_name(&v.gpu->profiles[v.gi->profile], v.ci->slices, profile, sizeof(profile));
	snprintf(text, sizeof(text), "%s MIG %s", v.gpu->name, profile);
	return put_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	VIEW_DEVICE(v, device);
	return put_text(uuid, length, v.ci ? v.ci->uuid : v.gpu->uuid);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	VIEW_DEVICE(v, device);
	return put_text(serial, length, v.gpu->serial);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *partNumber, unsigned int length)
{
	VIEW_DEVICE(v, device);
	return put_text(partNumber, length, v.gpu->part_number);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	VIEW_DEVICE(v, device);
	return put_text(version, length, v.gpu->vbios);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	VIEW_DEVICE(v, device);
	REFUSE_MIG(v);
	return put_uint(minorNumber, v.gpu->minor);
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *moduleId)
{
	VIEW_GPU(v, device);
	return put_uint(moduleId, v.gpu_index);
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *boardId)
{
	VIEW_GPU(v, device);
	return put_uint(boardId, v.gpu->pci_domain << 16 | v.gpu->pci_bus << 8 | v.gpu->pci_device << 3);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool)
{
	VIEW_GPU(v, device);
	return put_uint(multiGpuBool, 0);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
	VIEW_DEVICE(v, device);

	if (!type)
		return NVML_ERROR_INVALID_ARGUMENT;
	*type = v.gpu->brand;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
	VIEW_DEVICE(v, device);
	return put_uint(arch, v.gpu->architecture);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	VIEW_DEVICE(v, device);

	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = (int)v.gpu->cc_major;
	*minor = (int)v.gpu->cc_minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *numCores)
{
	VIEW_DEVICE(v, device);

	if (v.gi || v.gpu->mig_current) /* nvml.h: not supported on MIG-enabled GPUs */
		return NVML_ERROR_NOT_SUPPORTED;
	return put_uint(numCores, v.gpu->sm_count * v.gpu->cores_per_sm);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *busWidth)
{
	VIEW_DEVICE(v, device);
	return put_uint(busWidth, v.gpu->memory_bus_bits);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	VIEW_DEVICE(v, device);

	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pci = (nvmlPciInfo_t){ .domain = v.gpu->pci_domain, .bus = v.gpu->pci_bus, .device = v.gpu->pci_device,
				.pciDeviceId = v.gpu->pci_device_id, .pciSubSystemId = v.gpu->pci_subsystem_id };
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT,
		 v.gpu->pci_domain & 0xffff, v.gpu->pci_bus & 0xff, v.gpu->pci_device & 0x1f);
	snprintf(pci->busId, sizeof(pci->busId), NVML_DEVICE_PCI_BUS_ID_FMT, NVML_DEVICE_PCI_BUS_ID_FMT_ARGS(pci));
	return NVML_SUCCESS;
}

/* Before v3 the structure ended with four reserved fields where busId is now; the start is the same. */
struct pci_info_old {
	char bus_id[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
	unsigned int domain, bus, device, device_id, subsystem_id;
};

static nvmlReturn_t pci_info_old(nvmlDevice_t device, void *pci, size_t size)
{
	nvmlPciInfo_t now;
	nvmlReturn_t status = nvmlDeviceGetPciInfo_v3(device, &now);
	struct pci_info_old old;

	if (status)
		return status;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(old.bus_id, now.busIdLegacy, sizeof(old.bus_id));
	old.domain = now.domain;
	old.bus = now.bus;
	old.device = now.device;
	old.device_id = now.pciDeviceId;
	old.subsystem_id = now.pciSubSystemId;
	memcpy(pci, &old, size);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info_old(device, pci, sizeof(struct pci_info_old));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info_old(device, pci, offsetof(struct pci_info_old, subsystem_id)); /* v1 ends there */
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	VIEW_DEVICE(v, device);

	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pci->version != nvmlPciInfoExt_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	pci->domain = v.gpu->pci_domain;
	pci->bus = v.gpu->pci_bus;
	pci->device = v.gpu->pci_device;
	pci->pciDeviceId = v.gpu->pci_device_id;
	pci->pciSubSystemId = v.gpu->pci_subsystem_id;
	pci->baseClass = 0x03; /* display controller, */
	pci->subClass = 0x02;  /* 3D */
	snprintf(pci->busId, sizeof(pci->busId), NVML_DEVICE_PCI_BUS_ID_FMT, NVML_DEVICE_PCI_BUS_ID_FMT_ARGS(pci));
	return NVML_SUCCESS;
}
