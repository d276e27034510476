/* SPDX-License-Identifier: Apache-2.0 */
/* vGPU on a GPU or a GPU instance: modes, which types, which places. */
#include <string.h>

#include "nvml_sim.h"
#include "simvgpu.h"

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *pVirtualMode)
{
	VIEW_GPU(v, device);

	if (!pVirtualMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pVirtualMode = v.gpu->vgpu_family ? NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU : NVML_GPU_VIRTUALIZATION_MODE_NONE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, nvmlHostVgpuMode_t *pHostVgpuMode)
{
	VIEW_GPU(v, device);

	if (!pHostVgpuMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->vgpu_family)
		return NVML_ERROR_NOT_SUPPORTED;
	*pHostVgpuMode = v.gpu->vgpu_sriov ? NVML_HOST_VGPU_MODE_SRIOV : NVML_HOST_VGPU_MODE_NON_SRIOV;
	return NVML_SUCCESS;
}

/* Mixed size is for GPUs that can, without MIG. */
static bool mixed_applies(const struct view *v)
{
	return v->gpu->vgpu_family && v->gpu->vgpu_mixed_capable && !v->gpu->mig_current;
}

nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device, nvmlVgpuHeterogeneousMode_t *pHeterogeneousMode)
{
	VIEW_GPU(v, device);

	if (!pHeterogeneousMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pHeterogeneousMode->version != nvmlVgpuHeterogeneousMode_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!mixed_applies(&v))
		return NVML_ERROR_NOT_SUPPORTED;
	return put_uint(&pHeterogeneousMode->mode, v.gpu->vgpu_mixed ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device,
						const nvmlVgpuHeterogeneousMode_t *pHeterogeneousMode)
{
	CHANGE_GPU(v, device);

	if (!pHeterogeneousMode || pHeterogeneousMode->mode > NVML_FEATURE_ENABLED)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pHeterogeneousMode->version != nvmlVgpuHeterogeneousMode_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!mixed_applies(&v))
		return NVML_ERROR_NOT_SUPPORTED;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	if (sim_vgpu_count(v.m, v.gpu_index, NULL))
		return NVML_ERROR_IN_USE;
	v.gpu->vgpu_mixed = pHeterogeneousMode->mode == NVML_FEATURE_ENABLED;
	return view_commit(&v);
}

/* Answers with `n` numbers; `room`, the caller's, is told how many there are. */
static nvmlReturn_t put_list(unsigned int *to, unsigned int *room, const uint32_t *from, uint32_t n)
{
	unsigned int had = *room;

	*room = n;
	if (had < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (n && !to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (n)
		memcpy(to, from, n * sizeof(*from));
	return NVML_SUCCESS;
}

/* The GPU's types: all, those that can be made now, or those that can be made now in this instance. */
static uint32_t list_types(const struct view *v, bool creatable, uint32_t ids[SIM_MAX_VGPU_TYPES])
{
	struct sim_vgpu_place place;
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->m->n_vgpu_types; i++) {
		const struct sim_vgpu_type *t = &v->m->vgpu_types[i];

		if (t->family != v->gpu->vgpu_family)
			continue;
		if (creatable && !(v->gi ? sim_vgpu_fits_gi(v->m, v->gpu_index, v->gi, i, &place)
					 : sim_vgpu_fits(v->m, v->gpu_index, i, &place)))
			continue;
		ids[n++] = t->id;
	}
	return n;
}

static nvmlReturn_t put_types(const struct view *v, bool creatable, unsigned int *count, unsigned int *out)
{
	uint32_t ids[SIM_MAX_VGPU_TYPES];

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v->gpu->vgpu_family)
		return NVML_ERROR_NOT_SUPPORTED;
	return put_list(out, count, ids, list_types(v, creatable, ids));
}

nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t device, unsigned int *vgpuCount, nvmlVgpuTypeId_t *vgpuTypeIds)
{
	VIEW_GPU(v, device);
	return put_types(&v, false, vgpuCount, vgpuTypeIds);
}

nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t device, unsigned int *vgpuCount, nvmlVgpuTypeId_t *vgpuTypeIds)
{
	VIEW_GPU(v, device);
	return put_types(&v, true, vgpuCount, vgpuTypeIds);
}

nvmlReturn_t nvmlGpuInstanceGetCreatableVgpus(nvmlGpuInstance_t gpuInstance, nvmlVgpuTypeIdInfo_t *pVgpus)
{
	VIEW_GI(v, gpuInstance);

	if (!pVgpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pVgpus->version != nvmlVgpuTypeIdInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return put_types(&v, true, &pVgpus->vgpuCount, pVgpus->vgpuTypeIds);
}

/* Index of a type of this GPU that places are told for; NULL's answer is the status. */
static nvmlReturn_t find_type(const struct view *v, nvmlVgpuTypeId_t id, uint32_t *type)
{
	int found;

	if (!v->gpu->vgpu_family)
		return NVML_ERROR_NOT_SUPPORTED;
	found = sim_vgpu_type_index(v->m, v->gpu_index, id);
	if (found < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*type = (uint32_t)found;
	return nvml_check_root();
}

/* Version 1 lacks the last member; the rest is the same. */
static nvmlReturn_t put_placements(const struct view *v, nvmlVgpuTypeId_t id, bool only_free,
				   nvmlVgpuPlacementList_t *list)
{
	uint32_t places[SIM_MAX_VGPU_PLACES], type, n = 0;
	nvmlReturn_t status;
	struct sim_vgpu_place place;

	if (!list)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (list->version != nvmlVgpuPlacementList_v2 && list->version != nvmlVgpuPlacementList_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	status = find_type(v, id, &type);
	if (status)
		return status;
	if (v->m->vgpu_types[type].max_per_gi || (only_free && v->gpu->mig_current))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!only_free || sim_vgpu_fits(v->m, v->gpu_index, type, &place))
		n = sim_vgpu_placements(v->m, v->gpu_index, -1, type, only_free, places);
	list->placementSize = v->m->vgpu_types[type].size;
	return put_list(list->placementIds, &list->count, places, n);
}

nvmlReturn_t nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t device, nvmlVgpuTypeId_t vgpuTypeId,
						      nvmlVgpuPlacementList_t *pPlacementList)
{
	VIEW_GPU(v, device);
	return put_placements(&v, vgpuTypeId, false, pPlacementList);
}

nvmlReturn_t nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t device, nvmlVgpuTypeId_t vgpuTypeId,
						      nvmlVgpuPlacementList_t *pPlacementList)
{
	VIEW_GPU(v, device);
	return put_placements(&v, vgpuTypeId, true, pPlacementList);
}

nvmlReturn_t nvmlGpuInstanceGetVgpuTypeCreatablePlacements(nvmlGpuInstance_t gpuInstance,
							   nvmlVgpuCreatablePlacementInfo_t *info)
{
	uint32_t places[SIM_MAX_VGPU_PLACES], type, n = 0;
	struct sim_vgpu_place place;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != nvmlVgpuCreatablePlacementInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	status = find_type(&v, info->vgpuTypeId, &type);
	if (status)
		return status;
	if (sim_vgpu_fits_gi(v.m, v.gpu_index, v.gi, type, &place))
		n = sim_vgpu_placements(v.m, v.gpu_index, (int32_t)v.gi->id, type, true, places);
	info->placementSize = v.m->vgpu_types[type].size;
	return put_list(info->placementIds, &info->count, places, n);
}

nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, nvmlDeviceVgpuCapability_t capability,
					   unsigned int *capResult)
{
	VIEW_GPU(v, device);

	if ((unsigned int)capability >= NVML_DEVICE_VGPU_CAP_COUNT || !capResult)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->vgpu_family)
		return NVML_ERROR_NOT_SUPPORTED;
	switch (capability) {
	case NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_PROFILES:
		return put_uint(capResult, 1);
	case NVML_DEVICE_VGPU_CAP_HETEROGENEOUS_TIMESLICE_SIZES:
		return put_uint(capResult, v.gpu->vgpu_mixed_capable);
	case NVML_DEVICE_VGPU_CAP_HOMOGENEOUS_PLACEMENTS:
		return put_uint(capResult, 1);
	default:
		return put_uint(capResult, 0);
	}
}
