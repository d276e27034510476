/* SPDX-License-Identifier: Apache-2.0 */
/* Active vGPUs: those that a VM has. A vGPU that is only created is no instance to NVML. */
#include <stdio.h>
#include <string.h>

#include "nvml_sim.h"
#include "simvgpu.h"

#define MIB (1ull << 20)

static bool active(const struct sim_vgpu *g)
{
	return g->id && *g->vm;
}

static const struct sim_vgpu *find(const struct sim_machine *m, nvmlVgpuInstance_t id)
{
	for (uint32_t i = 0; i < m->n_vgpus; i++)
		if (m->vgpus[i].id == id && active(&m->vgpus[i]))
			return &m->vgpus[i];
	return NULL;
}

/* A view of the machine and, in it, the active vGPU `g`; returns from the function if there is none. */
#define VIEW_VGPU(v, g, id)                                                                    \
	const struct sim_vgpu *g;                                                              \
	VIEW_MACHINE(v);                                                                       \
	do {                                                                                   \
		g = find((v).m, id);                                                           \
		if (!g)                                                                        \
			return (id) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;      \
	} while (0)

/* Those of the GPU or, with `gi`, of the instance. */
static nvmlReturn_t put_active(const struct view *v, unsigned int *count, nvmlVgpuInstance_t *out)
{
	unsigned int room = *count, n = 0;

	for (uint32_t i = 0; i < v->m->n_vgpus; i++) {
		const struct sim_vgpu *g = &v->m->vgpus[i];

		if (!active(g) || g->gpu != v->gpu_index || (v->gi && g->gi_id != (int32_t)v->gi->id))
			continue;
		if (out && n < room)
			out[n] = g->id;
		n++;
	}
	*count = n;
	if (n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	return n && !out ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *vgpuCount, nvmlVgpuInstance_t *vgpuInstances)
{
	VIEW_GPU(v, device);

	if (!vgpuCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	return v.gpu->vgpu_family ? put_active(&v, vgpuCount, vgpuInstances) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpuInstanceGetActiveVgpus(nvmlGpuInstance_t gpuInstance, nvmlActiveVgpuInstanceInfo_t *info)
{
	VIEW_GI(v, gpuInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != nvmlActiveVgpuInstanceInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return v.gpu->vgpu_family ? put_active(&v, &info->vgpuCount, info->vgpuInstances) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t vgpuInstance, char *vmId, unsigned int size,
				     nvmlVgpuVmIdType_t *vmIdType)
{
	VIEW_VGPU(v, g, vgpuInstance);

	if (!vmId || !vmIdType)
		return NVML_ERROR_INVALID_ARGUMENT;
	*vmIdType = NVML_VGPU_VM_ID_UUID;
	return put_text(vmId, size, g->vm);
}

/* The vGPU's own UUID, which is not that of its mediated device. */
nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t vgpuInstance, char *uuid, unsigned int size)
{
	char text[40];
	VIEW_VGPU(v, g, vgpuInstance);

	snprintf(text, sizeof(text), "5a17c0de-%04x-4000-8000-%012x", g->gpu & 0xffff, g->id);
	return put_text(uuid, size, text);
}

nvmlReturn_t nvmlVgpuInstanceGetMdevUUID(nvmlVgpuInstance_t vgpuInstance, char *mdevUuid, unsigned int size)
{
	VIEW_VGPU(v, g, vgpuInstance);
	return *g->uuid ? put_text(mdevUuid, size, g->uuid) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlVgpuInstanceGetType(nvmlVgpuInstance_t vgpuInstance, nvmlVgpuTypeId_t *vgpuTypeId)
{
	VIEW_VGPU(v, g, vgpuInstance);
	return put_uint(vgpuTypeId, v.m->vgpu_types[g->type].id);
}

/* A guest that has loaded no driver yet: its driver reports nothing of the framebuffer. */
nvmlReturn_t nvmlVgpuInstanceGetFbUsage(nvmlVgpuInstance_t vgpuInstance, unsigned long long *fbUsage)
{
	VIEW_VGPU(v, g, vgpuInstance);

	if (!fbUsage)
		return NVML_ERROR_INVALID_ARGUMENT;
	*fbUsage = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuInstanceGetFrameRateLimit(nvmlVgpuInstance_t vgpuInstance, unsigned int *frameRateLimit)
{
	VIEW_VGPU(v, g, vgpuInstance);

	if (!frameRateLimit)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strstr(g->params, "frame_rate_limiter=0"))
		return NVML_ERROR_NOT_SUPPORTED;
	return put_uint(frameRateLimit, v.m->vgpu_types[g->type].frame_rate_limit);
}

nvmlReturn_t nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t vgpuInstance, unsigned int *gpuInstanceId)
{
	VIEW_VGPU(v, g, vgpuInstance);
	return put_uint(gpuInstanceId, g->gi_id < 0 ? INVALID_GPU_INSTANCE_ID : (unsigned int)g->gi_id);
}

nvmlReturn_t nvmlVgpuInstanceGetPlacementId(nvmlVgpuInstance_t vgpuInstance, nvmlVgpuPlacementId_t *pPlacement)
{
	VIEW_VGPU(v, g, vgpuInstance);

	if (!pPlacement)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pPlacement->version != nvmlVgpuPlacementId_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return put_uint(&pPlacement->placementId, g->placement);
}

/* No guest has a driver or a licence here. */
nvmlReturn_t nvmlVgpuInstanceGetVmDriverVersion(nvmlVgpuInstance_t vgpuInstance, char *version, unsigned int length)
{
	VIEW_VGPU(v, g, vgpuInstance);
	return put_text(version, length, "Not Available");
}

nvmlReturn_t nvmlVgpuInstanceGetLicenseStatus(nvmlVgpuInstance_t vgpuInstance, unsigned int *licensed)
{
	VIEW_VGPU(v, g, vgpuInstance);
	return put_uint(licensed, 0);
}
