/* SPDX-License-Identifier: Apache-2.0 */
/* Types of vGPU: what they are. A type's number is its handle; it is the same on all GPUs that know the type. */
#include <string.h>

#include "nvml_sim.h"

#define MIB (1ull << 20)

static const struct sim_vgpu_type *find(const struct sim_machine *m, nvmlVgpuTypeId_t id)
{
	for (uint32_t i = 0; i < m->n_vgpu_types; i++)
		if (m->vgpu_types[i].id == id)
			return &m->vgpu_types[i];
	return NULL;
}

/* A view of the machine and, in it, the type `t`; returns from the function if there is none. */
#define VIEW_TYPE(v, t, id)                                     \
	const struct sim_vgpu_type *t;                          \
	VIEW_MACHINE(v);                                        \
	do {                                                    \
		t = find((v).m, id);                            \
		if (!t)                                         \
			return NVML_ERROR_INVALID_ARGUMENT;     \
	} while (0)

/* For the two functions that take the buffer's size by reference and return the size that is needed. */
static nvmlReturn_t put_sized(char *to, unsigned int *size, const char *from)
{
	unsigned int room = size ? *size : 0, needed = (unsigned int)strlen(from) + 1;

	if (!to || !size)
		return NVML_ERROR_INVALID_ARGUMENT;
	*size = needed;
	return room < needed ? NVML_ERROR_INSUFFICIENT_SIZE : put_text(to, room, from);
}

nvmlReturn_t nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t vgpuTypeId, char *vgpuTypeClass, unsigned int *size)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_sized(vgpuTypeClass, size, t->class_name);
}

nvmlReturn_t nvmlVgpuTypeGetName(nvmlVgpuTypeId_t vgpuTypeId, char *vgpuTypeName, unsigned int *size)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_sized(vgpuTypeName, size, t->name);
}

nvmlReturn_t nvmlVgpuTypeGetGpuInstanceProfileId(nvmlVgpuTypeId_t vgpuTypeId, unsigned int *gpuInstanceProfileId)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_uint(gpuInstanceProfileId, t->max_per_gi ? t->gi_profile : INVALID_GPU_INSTANCE_PROFILE_ID);
}

nvmlReturn_t nvmlVgpuTypeGetDeviceID(nvmlVgpuTypeId_t vgpuTypeId, unsigned long long *deviceID,
				     unsigned long long *subsystemID)
{
	VIEW_TYPE(v, t, vgpuTypeId);

	if (!deviceID || !subsystemID)
		return NVML_ERROR_INVALID_ARGUMENT;
	*deviceID = t->device_id;
	*subsystemID = t->subsystem_id;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetFramebufferSize(nvmlVgpuTypeId_t vgpuTypeId, unsigned long long *fbSize)
{
	VIEW_TYPE(v, t, vgpuTypeId);

	if (!fbSize)
		return NVML_ERROR_INVALID_ARGUMENT;
	*fbSize = t->framebuffer_mib * MIB;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetNumDisplayHeads(nvmlVgpuTypeId_t vgpuTypeId, unsigned int *numDisplayHeads)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_uint(numDisplayHeads, t->heads);
}

nvmlReturn_t nvmlVgpuTypeGetResolution(nvmlVgpuTypeId_t vgpuTypeId, unsigned int displayIndex, unsigned int *xdim,
				       unsigned int *ydim)
{
	VIEW_TYPE(v, t, vgpuTypeId);

	if (!xdim || !ydim || displayIndex >= t->heads)
		return NVML_ERROR_INVALID_ARGUMENT;
	*xdim = t->max_x;
	*ydim = t->max_y;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t vgpuTypeId, char *vgpuTypeLicenseString, unsigned int size)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_text(vgpuTypeLicenseString, size, t->license);
}

nvmlReturn_t nvmlVgpuTypeGetFrameRateLimit(nvmlVgpuTypeId_t vgpuTypeId, unsigned int *frameRateLimit)
{
	VIEW_TYPE(v, t, vgpuTypeId);

	if (!frameRateLimit)
		return NVML_ERROR_INVALID_ARGUMENT;
	return t->frame_rate_limit ? put_uint(frameRateLimit, t->frame_rate_limit) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t vgpuTypeId,
					 unsigned int *vgpuInstanceCount)
{
	const struct sim_vgpu_type *t;
	VIEW_GPU(v, device);

	t = find(v.m, vgpuTypeId);
	if (!t || t->family != v.gpu->vgpu_family)
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(vgpuInstanceCount, t->max_instances);
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerVm(nvmlVgpuTypeId_t vgpuTypeId, unsigned int *vgpuInstanceCountPerVm)
{
	VIEW_TYPE(v, t, vgpuTypeId);
	return put_uint(vgpuInstanceCountPerVm, t->max_per_vm);
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_t *pMaxInstance)
{
	if (!pMaxInstance)
		return nvml_refuse(NVML_ERROR_INVALID_ARGUMENT);
	if (pMaxInstance->version != nvmlVgpuTypeMaxInstance_v1)
		return nvml_refuse(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	VIEW_TYPE(v, t, pMaxInstance->vgpuTypeId);

	if (!t->max_per_gi)
		return NVML_ERROR_NOT_SUPPORTED;
	pMaxInstance->maxInstancePerGI = t->max_per_gi;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetCapabilities(nvmlVgpuTypeId_t vgpuTypeId, nvmlVgpuCapability_t capability,
					 unsigned int *capResult)
{
	VIEW_TYPE(v, t, vgpuTypeId);

	if ((unsigned int)capability >= NVML_VGPU_CAP_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(capResult, 0);
}
