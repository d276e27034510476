/* SPDX-License-Identifier: Apache-2.0 */
/* GPU instances: profiles, placements, capacity, create, destroy, list. */
#include <stdio.h>
#include <string.h>

#include "mig_rules.h"
#include "nvml_sim.h"
#include "simvgpu.h"

#define MIB (1ull << 20)

/* For calls that need MIG mode and root: SUCCESS, or what to answer. Bad arguments come before. */
static nvmlReturn_t check_mig(const struct view *v)
{
	if (!v->gpu->mig_current)
		return NVML_ERROR_NOT_SUPPORTED;
	return nvml_check_root();
}

void mig_profile_name(const struct sim_profile *profile, uint32_t ci_slices, char *name, size_t size)
{
	if (ci_slices && ci_slices != profile->slices)
		snprintf(name, size, "%uc.%s", ci_slices, profile->name);
	else
		snprintf(name, size, "%s", profile->name);
}

/* A GPU without MIG and a profile that this board lacks are the same to the caller. */
static nvmlReturn_t find_by_enum(const struct view *v, unsigned int profile, const struct sim_profile **out)
{
	if (profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = v->gpu->mig_capable ? rules_profile_by_enum(v->gpu, profile) : NULL;
	return *out ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t find_by_id(const struct view *v, unsigned int id, const struct sim_profile **out)
{
	if (!v->gpu->mig_capable)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = rules_profile(v->gpu, id);
	return *out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
						 nvmlGpuInstanceProfileInfo_t *info)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_enum(&v, profile, &p);
	if (status)
		return status;
	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = p->id, .isP2pSupported = 0, .sliceCount = p->slices, .instanceCount = p->max_instances,
		.multiprocessorCount = p->sm_count, .copyEngineCount = p->copy_engines, .decoderCount = p->decoders,
		.encoderCount = p->encoders, .jpegCount = p->jpegs, .ofaCount = p->ofas,
		.memorySizeMB = p->memory_bytes / MIB,
	};
	return NVML_SUCCESS;
}

static void fill_v2(const struct sim_profile *p, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	*info = (nvmlGpuInstanceProfileInfo_v2_t){
		.version = nvmlGpuInstanceProfileInfo_v2, .id = p->id, .sliceCount = p->slices,
		.instanceCount = p->max_instances, .multiprocessorCount = p->sm_count,
		.copyEngineCount = p->copy_engines, .decoderCount = p->decoders, .encoderCount = p->encoders,
		.jpegCount = p->jpegs, .ofaCount = p->ofas, .memorySizeMB = p->memory_bytes / MIB,
	};
	snprintf(info->name, sizeof(info->name), "MIG %.80s", p->name);
}

static void fill_v3(const struct sim_profile *p, nvmlGpuInstanceProfileInfo_v3_t *info)
{
	*info = (nvmlGpuInstanceProfileInfo_v3_t){
		.version = nvmlGpuInstanceProfileInfo_v3, .id = p->id, .sliceCount = p->slices,
		.instanceCount = p->max_instances, .multiprocessorCount = p->sm_count,
		.copyEngineCount = p->copy_engines, .decoderCount = p->decoders, .encoderCount = p->encoders,
		.jpegCount = p->jpegs, .ofaCount = p->ofas, .memorySizeMB = p->memory_bytes / MIB,
		.capabilities = p->gfx ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0,
	};
	snprintf(info->name, sizeof(info->name), "MIG %.80s", p->name);
}

/* The caller's structure is of the version that it states. */
static nvmlReturn_t fill_versioned(const struct sim_profile *p, void *info)
{
	unsigned int version = *(unsigned int *)info;

	if (version == nvmlGpuInstanceProfileInfo_v2)
		fill_v2(p, info);
	else if (version == nvmlGpuInstanceProfileInfo_v3)
		fill_v3(p, info);
	else
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
						  nvmlGpuInstanceProfileInfo_v2_t *info)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_enum(&v, profile, &p);
	return status ? status : fill_versioned(p, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int profileId,
						      nvmlGpuInstanceProfileInfo_v2_t *info)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_id(&v, profileId, &p);
	return status ? status : fill_versioned(p, info);
}

/* `room`: how many the caller's buffer holds. */
static nvmlReturn_t possible_placements(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *placements,
					unsigned int room, unsigned int *count)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_id(&v, id, &p);
	if (!status)
		status = nvml_check_root();
	if (status)
		return status;
	*count = p->n_placements;
	if (!placements)
		return NVML_SUCCESS;
	if (room < p->n_placements)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; i < p->n_placements; i++)
		placements[i] = (nvmlGpuInstancePlacement_t){ p->placements[i].start, p->placements[i].size };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int profileId,
							   nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	return possible_placements(device, profileId, placements, count ? *count : 0, count);
}

/* Version 1 takes the buffer to be large enough; *count is output only. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int profileId,
							nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
	return possible_placements(device, profileId, placements, SIM_MAX_PLACEMENTS, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profileId,
						       unsigned int *count)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_id(&v, profileId, &p);
	if (!status)
		status = check_mig(&v);
	return status ? status : put_uint(count, rules_remaining(v.gpu, p));
}

/* `at` NULL: the driver chooses. */
static nvmlReturn_t create_gpu_instance(nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *placement,
			   nvmlGpuInstance_t *out)
{
	const struct sim_profile *p;
	struct sim_placement at = { 0 };
	struct sim_gi *gi;
	nvmlReturn_t status;
	CHANGE_GPU(v, device);

	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_id(&v, id, &p);
	if (!status)
		status = check_mig(&v);
	if (status)
		return status;
	if (placement) {
		at = (struct sim_placement){ placement->start, placement->size };
		if (!rules_has_placement(p, at))
			return NVML_ERROR_INVALID_ARGUMENT;
	} else if (!rules_choose(v.gpu, p, &at)) {
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	}
	gi = rules_create(v.gpu, p, at);
	if (!gi)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	*out = gi_handle(v.gpu_index, gi);
	return view_commit(&v);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstance)
{
	return create_gpu_instance(device, profileId, NULL, gpuInstance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profileId,
						      const nvmlGpuInstancePlacement_t *placement,
						      nvmlGpuInstance_t *gpuInstance)
{
	if (!placement)
		return nvml_refuse(NVML_ERROR_INVALID_ARGUMENT);
	return create_gpu_instance(device, profileId, placement, gpuInstance);
}

static bool has_compute_instance(const struct sim_gi *gi)
{
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (gi->ci[i].used)
			return true;
	return false;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpuInstance)
{
	CHANGE_GI(v, gpuInstance);

	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	if (has_compute_instance(v.gi) || rules_busy(v.m, v.gpu_index, v.gi, NULL) ||
	    sim_vgpu_count(v.m, v.gpu_index, v.gi))
		return NVML_ERROR_IN_USE;
	v.gi->used = false;
	return view_commit(&v);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId, nvmlGpuInstance_t *gpuInstances,
				       unsigned int *count)
{
	const struct sim_profile *p;
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!gpuInstances || !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_by_id(&v, profileId, &p);
	if (!status)
		status = check_mig(&v);
	if (status)
		return status;
	*count = 0; /* the buffer holds the profile's instanceCount, says nvml.h */
	for (uint32_t i = 0; i < SIM_MAX_GI; i++)
		if (v.gpu->gi[i].used && &v.gpu->profiles[v.gpu->gi[i].profile] == p)
			gpuInstances[(*count)++] = gi_handle(v.gpu_index, &v.gpu->gi[i]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *gpuInstance)
{
	nvmlReturn_t status;
	VIEW_GPU(v, device);

	if (!gpuInstance)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = check_mig(&v);
	if (status)
		return status;
	for (uint32_t i = 0; i < SIM_MAX_GI; i++) {
		if (v.gpu->gi[i].used && v.gpu->gi[i].id == id) {
			*gpuInstance = gi_handle(v.gpu_index, &v.gpu->gi[i]);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpuInstance, nvmlGpuInstanceInfo_t *info)
{
	VIEW_GI(v, gpuInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlGpuInstanceInfo_t){ .device = gpu_handle(v.gpu_index), .id = v.gi->id,
					 .profileId = v.gpu->profiles[v.gi->profile].id,
					 .placement = { v.gi->placement.start, v.gi->placement.size } };
	return NVML_SUCCESS;
}
