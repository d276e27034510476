/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and processes: of this VM only, as the worker counts them. */
#include "nvml_guest.h"

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct use use;
	nvmlReturn_t status;

	NVML_ENTER_GPU(g, device);
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	status = gpu_read_use(g, &use);
	if (status != NVML_SUCCESS)
		return status;
	memory->total = g->is.total_bytes;
	memory->used = use.bytes < memory->total ? use.bytes : memory->total;
	memory->free = memory->total - memory->used;
	memory->reserved = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t now = { .version = nvmlMemory_v2 };
	nvmlReturn_t status = nvmlDeviceGetMemoryInfo_v2(device, &now);

	if (status == NVML_SUCCESS && !memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (status == NVML_SUCCESS)
		*memory = (nvmlMemory_t){ .total = now.total, .free = now.free, .used = now.used };
	return status;
}

/* NVML's protocol of count and buffer: NVML_SUCCESS and *fill, where `n` entries are to be written. */
static nvmlReturn_t check_room(unsigned int *count, const void *buffer, unsigned int n, bool *fill)
{
	unsigned int room = *count;

	*fill = false;
	*count = n;
	if (!n)
		return NVML_SUCCESS;
	if (room < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	*fill = buffer;
	return buffer ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)
{
	nvmlReturn_t status;
	struct use use;
	bool fill;

	NVML_ENTER_GPU(g, device);
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = gpu_read_use(g, &use);
	if (status == NVML_SUCCESS)
		status = check_room(count, list, use.count, &fill);
	for (unsigned int i = 0; status == NVML_SUCCESS && fill && i < use.count; i++)
		list[i] = (nvmlProcessInfo_t){ .pid = use.process[i].pid,
					       .usedGpuMemory = use.process[i].bytes,
					       .gpuInstanceId = UINT32_MAX,
					       .computeInstanceId = UINT32_MAX };
	return status;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *list)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, list);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *list)
{
	nvmlReturn_t status;
	struct use use;
	bool fill;

	NVML_ENTER_GPU(g, device);
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = gpu_read_use(g, &use);
	if (status == NVML_SUCCESS)
		status = check_room(count, list, use.count, &fill);
	for (unsigned int i = 0; status == NVML_SUCCESS && fill && i < use.count; i++)
		list[i] = (nvmlProcessInfo_v1_t){ .pid = use.process[i].pid, .usedGpuMemory = use.process[i].bytes };
	return status;
}

/* Nothing but CUDA is forwarded. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count)
{
	NVML_ENTER_GPU(g, device);
	(void)g;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)
{
	(void)list;
	return none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *list)
{
	(void)list;
	return none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *list)
{
	(void)list;
	return none(device, count);
}
