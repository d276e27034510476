/* SPDX-License-Identifier: Apache-2.0 */
/* MIG devices: compute instances seen as devices. */
#include "nvml_sim.h"

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
	VIEW_DEVICE(v, device);
	return put_uint(isMigDevice, v.ci != NULL);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	VIEW_MIG(v, device);
	return put_uint(id, v.gi->id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	VIEW_MIG(v, device);
	return put_uint(id, v.ci->id);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	VIEW_GPU(v, device);
	return put_uint(count, v.gpu->mig_current ? v.gpu->compute_slices : 0);
}

struct mig_device {
	const struct sim_gi *gi;
	const struct sim_ci *ci;
};

static uint32_t order(const struct mig_device *d)
{
	return d->gi->id << 8 | d->ci->id;
}

/* The MIG device with the lowest ids above `after`; false if there is none. */
static bool next_device(const struct sim_gpu *gpu, int64_t after, struct mig_device *next)
{
	bool found = false;

	for (uint32_t g = 0; g < SIM_MAX_GI; g++) {
		for (uint32_t c = 0; gpu->gi[g].used && c < SIM_MAX_CI; c++) {
			struct mig_device d = { &gpu->gi[g], &gpu->gi[g].ci[c] };

			if (!d.ci->used || order(&d) <= after || (found && order(&d) > order(next)))
				continue;
			*next = d;
			found = true;
		}
	}
	return found;
}

/* The index-th in the order of GPU-instance and compute-instance id; false if there are fewer. */
static bool nth_device(const struct sim_gpu *gpu, unsigned int index, struct mig_device *device)
{
	int64_t after = -1;

	for (unsigned int i = 0; i <= index; i++) {
		if (!next_device(gpu, after, device))
			return false;
		after = order(device);
	}
	return true;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
	struct mig_device found;
	VIEW_GPU(v, device);

	if (!migDevice)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->mig_capable)
		return NVML_ERROR_NOT_SUPPORTED;
	if (v.gpu->mig_current && index >= v.gpu->compute_slices)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!nth_device(v.gpu, index < v.gpu->compute_slices ? index : 0, &found))
		return NVML_ERROR_NOT_FOUND;
	*migDevice = mig_handle(v.gpu_index, found.gi, found.ci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice, nvmlDevice_t *device)
{
	VIEW_MIG(v, migDevice);

	if (!device)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = gpu_handle(v.gpu_index);
	return NVML_SUCCESS;
}

static unsigned int mig_index(const struct view *v)
{
	struct mig_device d;
	unsigned int n = 0;

	while (nth_device(v->gpu, n, &d) && d.ci != v->ci)
		n++;
	return n;
}

/* Of a MIG device: its index under its GPU. */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	VIEW_DEVICE(v, device);
	return put_uint(index, v.ci ? mig_index(&v) : sim_gpus_before(v.m, v.gpu_index));
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	const struct sim_profile *p;
	VIEW_DEVICE(v, device);

	if (!attributes)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.ci) /* nvml.h: MIG devices only */
		return NVML_ERROR_NOT_SUPPORTED;
	p = &v.gpu->profiles[v.gi->profile];
	*attributes = (nvmlDeviceAttributes_t){
		.multiprocessorCount = v.ci->sm_count, .sharedCopyEngineCount = p->copy_engines,
		.sharedDecoderCount = p->decoders, .sharedEncoderCount = p->encoders, .sharedJpegCount = p->jpegs,
		.sharedOfaCount = p->ofas, .gpuInstanceSliceCount = p->slices,
		.computeInstanceSliceCount = v.ci->slices, .memorySizeMB = p->memory_bytes >> 20,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	return nvmlDeviceGetAttributes_v2(device, attributes);
}
