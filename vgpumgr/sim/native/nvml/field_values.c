/* SPDX-License-Identifier: Apache-2.0 */
/* nvmlDeviceGetFieldValues: the few fields that clients ask for, each by way of its getter where there is one. */
#include <time.h>

#include "nvml_sim.h"

static void put(nvmlFieldValue_t *value, nvmlReturn_t status, unsigned int number)
{
	value->nvmlReturn = status;
	value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	value->value.uiVal = number;
}

static void read_ecc(nvmlDevice_t device, nvmlFieldValue_t *value)
{
	nvmlEnableState_t current = 0, pending = 0;
	nvmlReturn_t status = nvmlDeviceGetEccMode(device, &current, &pending);

	put(value, status, value->fieldId == NVML_FI_DEV_ECC_CURRENT ? current : pending);
}

static void read_power(nvmlDevice_t device, nvmlFieldValue_t *value)
{
	unsigned int mw = 0;
	nvmlReturn_t status = value->fieldId == NVML_FI_DEV_POWER_CURRENT_LIMIT ?
				      nvmlDeviceGetEnforcedPowerLimit(device, &mw) :
				      nvmlDeviceGetPowerUsage(device, &mw);

	put(value, status, mw);
}

static nvmlReturn_t mig_needs_reset(nvmlDevice_t device, bool *capable, bool *needs_reset)
{
	VIEW_GPU(v, device);

	*capable = v.gpu->mig_capable;
	*needs_reset = v.gpu->mig_needs_reset;
	return NVML_SUCCESS;
}

static void read_mig(nvmlDevice_t device, nvmlFieldValue_t *value)
{
	bool capable = false, needs_reset = false;
	nvmlReturn_t status = mig_needs_reset(device, &capable, &needs_reset);

	/* profiles and placements can be asked for whether MIG mode is on or not */
	put(value, status, value->fieldId == NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED ? capable && !needs_reset : capable);
}

/* The one call that must answer for a GPU that is lost. */
static nvmlReturn_t recovery_action(nvmlDevice_t device, unsigned int *action)
{
	nvmlReturn_t status = mig_needs_reset(device, &(bool){ false }, &(bool){ false });

	*action = status == NVML_ERROR_GPU_IS_LOST ? NVML_GPU_RECOVERY_ACTION_GPU_RESET :
						     NVML_GPU_RECOVERY_ACTION_NONE;
	return status == NVML_ERROR_GPU_IS_LOST ? NVML_SUCCESS : status;
}

static void read_field(nvmlDevice_t device, nvmlFieldValue_t *value)
{
	unsigned int number = 0;
	nvmlReturn_t status;

	switch (value->fieldId) {
	case NVML_FI_DEV_ECC_CURRENT:
	case NVML_FI_DEV_ECC_PENDING:
		read_ecc(device, value);
		return;
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
		read_power(device, value);
		return;
	case NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED:
	case NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE:
		read_mig(device, value);
		return;
	case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
		status = nvmlDeviceGetPcieReplayCounter(device, &number);
		break;
	case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
		status = recovery_action(device, &number);
		break;
	default:
		status = NVML_ERROR_NOT_SUPPORTED;
		break;
	}
	put(value, status, number);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	nvmlReturn_t status = nvml_refuse(NVML_SUCCESS);
	struct timespec now;

	if (status)
		return status;
	if (!values || valuesCount < 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < valuesCount; i++) {
		values[i].timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
		values[i].latencyUsec = 0;
		read_field(device, &values[i]);
	}
	return NVML_SUCCESS;
}
