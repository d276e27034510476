/* SPDX-License-Identifier: Apache-2.0 */
/* Compute instances: profiles, placements, capacity, create, destroy, list. */
#include <stdio.h>

#include "mig_rules.h"
#include "nvml_sim.h"

/* An unknown number is a bad argument, a known one that this GPU instance lacks is not supported. */
static nvmlReturn_t find_profile(const struct view *v, unsigned int id, struct ci_profile *out)
{
	if (id >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	return rules_ci_profile(v->gpu, v->gi, id, out) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t find_with_engine(const struct view *v, unsigned int id, unsigned int engine,
				     struct ci_profile *out)
{
	return engine < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT ? find_profile(v, id, out) :
								     NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpuInstance, unsigned int profile,
							  unsigned int engProfile,
							  nvmlComputeInstanceProfileInfo_t *info)
{
	const struct sim_profile *gi;
	struct ci_profile p;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_with_engine(&v, profile, engProfile, &p);
	if (status)
		return status;
	gi = &v.gpu->profiles[v.gi->profile];
	*info = (nvmlComputeInstanceProfileInfo_t){
		.id = p.id, .sliceCount = p.slices, .instanceCount = p.max_instances, .multiprocessorCount = p.sm_count,
		.sharedCopyEngineCount = gi->copy_engines, .sharedDecoderCount = gi->decoders,
		.sharedEncoderCount = gi->encoders, .sharedJpegCount = gi->jpegs, .sharedOfaCount = gi->ofas,
	};
	return NVML_SUCCESS;
}

static void fill_v2(const struct sim_profile *gi, const struct ci_profile *p, nvmlComputeInstanceProfileInfo_v2_t *info)
{
	char name[SIM_NAME + 8];

	mig_profile_name(gi, p->slices, name, sizeof(name));
	*info = (nvmlComputeInstanceProfileInfo_v2_t){
		.version = nvmlComputeInstanceProfileInfo_v2, .id = p->id, .sliceCount = p->slices,
		.instanceCount = p->max_instances, .multiprocessorCount = p->sm_count,
		.sharedCopyEngineCount = gi->copy_engines, .sharedDecoderCount = gi->decoders,
		.sharedEncoderCount = gi->encoders, .sharedJpegCount = gi->jpegs, .sharedOfaCount = gi->ofas,
	};
	snprintf(info->name, sizeof(info->name), "MIG %.80s", name);
}

static void fill_v3(const struct sim_profile *gi, const struct ci_profile *p, nvmlComputeInstanceProfileInfo_v3_t *info)
{
	char name[SIM_NAME + 8];

	mig_profile_name(gi, p->slices, name, sizeof(name));
	*info = (nvmlComputeInstanceProfileInfo_v3_t){
		.version = nvmlComputeInstanceProfileInfo_v3, .id = p->id, .sliceCount = p->slices,
		.instanceCount = p->max_instances, .multiprocessorCount = p->sm_count,
		.sharedCopyEngineCount = gi->copy_engines, .sharedDecoderCount = gi->decoders,
		.sharedEncoderCount = gi->encoders, .sharedJpegCount = gi->jpegs, .sharedOfaCount = gi->ofas,
		.capabilities = gi->gfx ? NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX : 0,
	};
	snprintf(info->name, sizeof(info->name), "MIG %.80s", name);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t gpuInstance, unsigned int profile,
							   unsigned int engProfile,
							   nvmlComputeInstanceProfileInfo_v2_t *info)
{
	struct ci_profile p;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_with_engine(&v, profile, engProfile, &p);
	if (status)
		return status;
	if (info->version == nvmlComputeInstanceProfileInfo_v2)
		fill_v2(&v.gpu->profiles[v.gi->profile], &p, info);
	else if (info->version == nvmlComputeInstanceProfileInfo_v3)
		fill_v3(&v.gpu->profiles[v.gi->profile], &p, (nvmlComputeInstanceProfileInfo_v3_t *)info);
	else
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
								unsigned int *count)
{
	struct ci_profile p;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	status = count ? find_profile(&v, profileId, &p) : NVML_ERROR_INVALID_ARGUMENT;
	if (!status)
		status = nvml_check_root();
	return status ? status : put_uint(count, rules_ci_remaining(v.gi, &p));
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
								 nvmlComputeInstancePlacement_t *placements,
								 unsigned int *count)
{
	struct ci_profile p;
	unsigned int room;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	status = count ? find_profile(&v, profileId, &p) : NVML_ERROR_INVALID_ARGUMENT;
	if (!status)
		status = nvml_check_root();
	if (status)
		return status;
	room = *count;
	*count = p.n_placements;
	if (!placements)
		return NVML_SUCCESS;
	if (room < p.n_placements)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; i < p.n_placements; i++)
		placements[i] = (nvmlComputeInstancePlacement_t){ p.placements[i].start, p.placements[i].size };
	return NVML_SUCCESS;
}

static bool has_placement(const struct ci_profile *p, struct sim_placement at)
{
	for (uint32_t i = 0; i < p->n_placements; i++)
		if (p->placements[i].start == at.start && p->placements[i].size == at.size)
			return true;
	return false;
}

/* `placement` NULL: the lowest free place. */
static nvmlReturn_t create_compute_instance(nvmlGpuInstance_t gpuInstance, unsigned int id,
			   const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *out)
{
	struct sim_placement at = { 0 };
	struct ci_profile p;
	struct sim_ci *ci;
	nvmlReturn_t status;
	CHANGE_GI(v, gpuInstance);

	status = out ? find_profile(&v, id, &p) : NVML_ERROR_INVALID_ARGUMENT;
	if (!status)
		status = nvml_check_root();
	if (status)
		return status;
	if (placement) {
		at = (struct sim_placement){ placement->start, placement->size };
		if (!has_placement(&p, at))
			return NVML_ERROR_INVALID_ARGUMENT;
	} else if (!rules_ci_choose(v.gi, &p, &at)) {
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	}
	ci = rules_ci_create(v.gpu, v.gi, &p, at);
	if (!ci)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	*out = ci_handle(v.gpu_index, v.gi, ci);
	return view_commit(&v);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
						  nvmlComputeInstance_t *computeInstance)
{
	return create_compute_instance(gpuInstance, profileId, NULL, computeInstance);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
							       const nvmlComputeInstancePlacement_t *placement,
							       nvmlComputeInstance_t *computeInstance)
{
	if (!placement)
		return nvml_refuse(NVML_ERROR_INVALID_ARGUMENT);
	return create_compute_instance(gpuInstance, profileId, placement, computeInstance);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t computeInstance)
{
	CHANGE_CI(v, computeInstance);

	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	if (rules_busy(v.m, v.gpu_index, v.gi, v.ci))
		return NVML_ERROR_IN_USE;
	v.ci->used = false;
	return view_commit(&v);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpuInstance, unsigned int profileId,
						nvmlComputeInstance_t *computeInstances, unsigned int *count)
{
	struct ci_profile p;
	nvmlReturn_t status;
	VIEW_GI(v, gpuInstance);

	if (!computeInstances || !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = find_profile(&v, profileId, &p);
	if (!status)
		status = nvml_check_root();
	if (status)
		return status;
	*count = 0;
	for (uint32_t i = 0; i < SIM_MAX_CI; i++)
		if (v.gi->ci[i].used && v.gi->ci[i].profile_enum == profileId)
			computeInstances[(*count)++] = ci_handle(v.gpu_index, v.gi, &v.gi->ci[i]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpuInstance, unsigned int id,
						   nvmlComputeInstance_t *computeInstance)
{
	VIEW_GI(v, gpuInstance);

	if (!computeInstance)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	for (uint32_t i = 0; i < SIM_MAX_CI; i++) {
		if (v.gi->ci[i].used && v.gi->ci[i].id == id) {
			*computeInstance = ci_handle(v.gpu_index, v.gi, &v.gi->ci[i]);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t get_info(nvmlComputeInstance_t computeInstance, nvmlDevice_t *mig, nvmlComputeInstanceInfo_t *info)
{
	VIEW_CI(v, computeInstance);

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	*info = (nvmlComputeInstanceInfo_t){ .device = gpu_handle(v.gpu_index),
					     .gpuInstance = gi_handle(v.gpu_index, v.gi), .id = v.ci->id,
					     .profileId = v.ci->profile_enum,
					     .placement = { v.ci->placement.start, v.ci->placement.size } };
	*mig = mig_handle(v.gpu_index, v.gi, v.ci);
	return NVML_SUCCESS;
}

/* Version 1 names the GPU, version 2 the MIG device. */
nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
	nvmlDevice_t mig;

	return get_info(computeInstance, &mig, info);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t computeInstance, nvmlComputeInstanceInfo_t *info)
{
	nvmlDevice_t mig;
	nvmlReturn_t status = get_info(computeInstance, &mig, info);

	if (!status)
		info->device = mig;
	return status;
}
