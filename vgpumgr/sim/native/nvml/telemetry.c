/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, utilisation, power, temperature, clocks, ECC and modes. Memory and utilisation are those of the clients that
 * run on the simulated CUDA driver; power, temperature and clocks follow from the utilisation.
 */
#include "nvml_sim.h"

static uint32_t utilization(const struct view *v)
{
	return sim_gpu_utilization(nvml_state(), v->gpu_index);
}

/* NVML's `used` of version 1 includes what the driver reserves, version 2's does not. */
static void memory_of(const struct view *v, nvmlMemory_v2_t *memory)
{
	uint64_t total = 0, used = 0;

	sim_capacity(v->m, v->gpu_index, v->gi ? (int32_t)v->gi->id : -1, &total, &used);
	memory->reserved = v->gi ? 0 : v->gpu->memory_reserved_bytes;
	memory->total = total + memory->reserved;
	memory->used = used;
	memory->free = total - used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t now;
	VIEW_DEVICE(v, device);

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory_of(&v, &now);
	memory->total = now.total;
	memory->free = now.free;
	memory->used = now.used + now.reserved;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	VIEW_DEVICE(v, device);

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory_of(&v, memory);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
	VIEW_DEVICE(v, device);

	if (!bar1Memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	*bar1Memory = (nvmlBAR1Memory_t){ .bar1Total = v.gpu->bar1_bytes, .bar1Used = 1 << 20,
					  .bar1Free = v.gpu->bar1_bytes - (1 << 20) };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *util)
{
	VIEW_DEVICE(v, device);

	if (!util)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (v.gi || v.gpu->mig_current) /* nvml.h: not supported on MIG-enabled GPUs */
		return NVML_ERROR_NOT_SUPPORTED;
	util->gpu = utilization(&v);
	util->memory = util->gpu / 2;
	return NVML_SUCCESS;
}

static nvmlReturn_t engine_utilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
	VIEW_DEVICE(v, device);

	if (!percent || !period_us)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (v.gi || v.gpu->mig_current)
		return NVML_ERROR_NOT_SUPPORTED;
	*percent = 0; /* the simulated driver has no video engines that could be busy */
	*period_us = 167000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization,
					     unsigned int *samplingPeriodUs)
{
	return engine_utilization(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization,
					     unsigned int *samplingPeriodUs)
{
	return engine_utilization(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *utilization,
					 unsigned int *samplingPeriodUs)
{
	return engine_utilization(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *utilization,
					 unsigned int *samplingPeriodUs)
{
	return engine_utilization(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	VIEW_GPU(v, device);
	/* a busy GPU draws nine tenths of its limit */
	return put_uint(power, v.gpu->idle_power_mw + (uint32_t)((uint64_t)(v.gpu->power_limit_mw / 10 * 9 -
					v.gpu->idle_power_mw) * utilization(&v) / 100));
}

static nvmlReturn_t power_limit(nvmlDevice_t device, unsigned int *limit)
{
	VIEW_GPU(v, device);
	return put_uint(limit, v.gpu->power_limit_mw);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)
{
	return power_limit(device, limit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *defaultLimit)
{
	return power_limit(device, defaultLimit);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
	return power_limit(device, limit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *minLimit,
							  unsigned int *maxLimit)
{
	VIEW_GPU(v, device);

	if (!minLimit || !maxLimit)
		return NVML_ERROR_INVALID_ARGUMENT;
	*minLimit = v.gpu->power_limit_mw / 4;
	*maxLimit = v.gpu->power_limit_mw;
	return NVML_SUCCESS;
}

static uint32_t temperature(const struct view *v)
{
	uint32_t hot = v->gpu->max_temperature_c - 25; /* under full load, well below the slowdown threshold */

	if (v->gpu->temperature_c) /* as a user of the machine has set it */
		return v->gpu->temperature_c;
	return v->gpu->idle_temperature_c + (hot - v->gpu->idle_temperature_c) * utilization(v) / 100;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	VIEW_GPU(v, device);

	if (sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(temp, temperature(&v));
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *reading)
{
	VIEW_GPU(v, device);

	if (!reading || reading->sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (reading->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	reading->temperature = (int)temperature(&v);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType,
					       unsigned int *temp)
{
	VIEW_GPU(v, device);

	switch (thresholdType) {
	case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
		return put_uint(temp, v.gpu->max_temperature_c + 5);
	case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
		return put_uint(temp, v.gpu->max_temperature_c);
	case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
		return put_uint(temp, v.gpu->max_temperature_c - 5);
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

/* The highest clock of a domain; 0: no such domain. */
static uint32_t max_clock(const struct sim_gpu *gpu, nvmlClockType_t type)
{
	switch (type) {
	case NVML_CLOCK_GRAPHICS:
	case NVML_CLOCK_SM:
		return gpu->sm_clock_mhz;
	case NVML_CLOCK_MEM:
		return gpu->mem_clock_mhz;
	case NVML_CLOCK_VIDEO:
		return gpu->sm_clock_mhz / 10 * 9;
	default:
		return 0;
	}
}

static uint32_t current_clock(const struct view *v, nvmlClockType_t type)
{
	uint32_t max = max_clock(v->gpu, type);

	/* data-centre boards keep the memory clock; an idle GPU runs its other domains at a fraction */
	return type == NVML_CLOCK_MEM || utilization(v) ? max : max / 5;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	VIEW_GPU(v, device);

	if (!max_clock(v.gpu, type))
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(clock, current_clock(&v, type));
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	VIEW_GPU(v, device);

	if (!max_clock(v.gpu, type))
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(clock, max_clock(v.gpu, type));
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId,
				unsigned int *clockMHz)
{
	VIEW_GPU(v, device);

	if (!max_clock(v.gpu, clockType) || clockId >= NVML_CLOCK_ID_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (clockId == NVML_CLOCK_ID_CURRENT)
		return put_uint(clockMHz, current_clock(&v, clockType));
	return put_uint(clockMHz, max_clock(v.gpu, clockType));
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	VIEW_GPU(v, device);

	if (!pState)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pState = NVML_PSTATE_0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	return nvmlDeviceGetPerformanceState(device, pState);
}

static nvmlReturn_t event_reasons(nvmlDevice_t device, unsigned long long *reasons)
{
	VIEW_GPU(v, device);

	if (!reasons)
		return NVML_ERROR_INVALID_ARGUMENT;
	*reasons = utilization(&v) ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *clocksEventReasons)
{
	return event_reasons(device, clocksEventReasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
						       unsigned long long *clocksThrottleReasons)
{
	return event_reasons(device, clocksThrottleReasons);
}

static nvmlReturn_t put_state(nvmlEnableState_t *to, bool on)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	*to = on ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	VIEW_GPU(v, device);
	return put_state(mode, true);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display)
{
	VIEW_GPU(v, device);
	return put_state(display, false);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive)
{
	VIEW_GPU(v, device);
	return put_state(isActive, false);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	VIEW_GPU(v, device);
	return put_state(mode, v.gpu->persistence);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	CHANGE_GPU(v, device);

	if (mode > NVML_FEATURE_ENABLED)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	v.gpu->persistence = mode == NVML_FEATURE_ENABLED;
	return view_commit(&v);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	VIEW_DEVICE(v, device);

	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mode = v.gpu->compute_mode;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
	CHANGE_GPU(v, device);

	if (mode >= NVML_COMPUTEMODE_COUNT || mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	v.gpu->compute_mode = mode;
	return view_commit(&v);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	nvmlReturn_t status;
	VIEW_DEVICE(v, device);

	status = put_state(current, v.gpu->ecc_current);
	return status ? status : put_state(pending, v.gpu->ecc_pending);
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
	VIEW_GPU(v, device);
	return put_state(defaultMode, true);
}

nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t ecc)
{
	CHANGE_GPU(v, device);

	if (ecc > NVML_FEATURE_ENABLED)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml_check_root())
		return NVML_ERROR_NO_PERMISSION;
	v.gpu->ecc_pending = ecc == NVML_FEATURE_ENABLED; /* takes effect at the next reset */
	return view_commit(&v);
}

/* The machine keeps one count of each: a reboot ends it. */
static uint64_t count_ecc(const struct view *v, nvmlMemoryErrorType_t type)
{
	return type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? v->gpu->ecc_single : v->gpu->ecc_double;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
					 nvmlEccCounterType_t counterType, unsigned long long *eccCounts)
{
	VIEW_DEVICE(v, device);

	if (!eccCounts || errorType >= NVML_MEMORY_ERROR_TYPE_COUNT ||
	    counterType >= NVML_ECC_COUNTER_TYPE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->ecc_current)
		return NVML_ERROR_NOT_SUPPORTED;
	*eccCounts = count_ecc(&v, errorType);
	return NVML_SUCCESS;
}

/* All errors are in the device's memory. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
					     nvmlEccCounterType_t counterType, nvmlMemoryLocation_t locationType,
					     unsigned long long *count)
{
	VIEW_DEVICE(v, device);

	if (!count || errorType >= NVML_MEMORY_ERROR_TYPE_COUNT || counterType >= NVML_ECC_COUNTER_TYPE_COUNT ||
	    locationType >= NVML_MEMORY_LOCATION_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!v.gpu->ecc_current)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = locationType == NVML_MEMORY_LOCATION_DEVICE_MEMORY ? count_ecc(&v, errorType) : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows, unsigned int *uncRows,
				       unsigned int *isPending, unsigned int *failureOccurred)
{
	VIEW_GPU(v, device);

	if (!corrRows || !uncRows || !isPending || !failureOccurred)
		return NVML_ERROR_INVALID_ARGUMENT;
	*corrRows = *uncRows = *isPending = *failureOccurred = 0;
	return NVML_SUCCESS;
}
