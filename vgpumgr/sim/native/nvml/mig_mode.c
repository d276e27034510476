/* SPDX-License-Identifier: Apache-2.0 */
/* MIG mode. */
#include <string.h>

#include "mig_rules.h"
#include "nvml_sim.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
	VIEW_GPU(v, device);

	if (!currentMode || !pendingMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->mig_capable)
		return NVML_ERROR_NOT_SUPPORTED;
	*currentMode = v.gpu->mig_current;
	*pendingMode = v.gpu->mig_pending;
	return NVML_SUCCESS;
}

/* The change itself: a reset, or on newer GPUs the driver's own work, which no instance survives either. */
static void activate(struct sim_gpu *gpu, bool on)
{
	if (gpu->mig_current != on)
		memset(gpu->gi, 0, sizeof(gpu->gi));
	gpu->mig_current = gpu->mig_pending = on;
}

/* In use by another client: a process that computes, and VFs, which the vGPU manager keeps open. */
static bool in_use(const struct view *v)
{
	return v->gpu->n_vfs || rules_busy(v->m, v->gpu_index, NULL, NULL);
}

/*
 * With a client on the GPU the mode stays as it is and the status is IN_USE. Ampere, which needs a reset, keeps the
 * wish as pending; asking again once the clients have gone (or a reset) brings it about.
 */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activationStatus)
{
	CHANGE_GPU(v, device);

	if (!activationStatus || mode > NVML_DEVICE_MIG_ENABLE)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->mig_capable)
		return NVML_ERROR_NOT_SUPPORTED;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	*activationStatus = NVML_SUCCESS;
	if (v.gpu->mig_current == mode || !in_use(&v)) {
		activate(v.gpu, mode);
		v.m->vgpu_changes++;
	} else {
		*activationStatus = NVML_ERROR_IN_USE;
		if (v.gpu->mig_needs_reset)
			v.gpu->mig_pending = mode;
	}
	return view_commit(&v);
}
