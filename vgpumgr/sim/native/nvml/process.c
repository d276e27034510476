/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes on a GPU or a MIG device: the clients of the simulated CUDA driver. */
#include "nvml_sim.h"

struct processes {
	unsigned int count;
	nvmlProcessInfo_v2_t list[SIM_MAX_CLIENTS];
};

static bool concerns(const struct view *v, const struct sim_client *c)
{
	if (!c->used || c->gpu != v->gpu_index)
		return false;
	return !v->gi || (c->gi_id == (int32_t)v->gi->id && c->ci_id == (int32_t)v->ci->id);
}

/* One entry for each process and instance, however many contexts it has there. */
static void add_client(struct processes *p, const struct sim_client *c)
{
	nvmlProcessInfo_v2_t entry = { .pid = (unsigned int)c->pid, .usedGpuMemory = c->memory_bytes,
				       .gpuInstanceId = (unsigned int)c->gi_id,
				       .computeInstanceId = (unsigned int)c->ci_id };

	for (unsigned int i = 0; i < p->count; i++) {
		nvmlProcessInfo_v2_t *known = &p->list[i];

		if (known->pid == entry.pid && known->gpuInstanceId == entry.gpuInstanceId &&
		    known->computeInstanceId == entry.computeInstanceId) {
			known->usedGpuMemory += entry.usedGpuMemory;
			return;
		}
	}
	p->list[p->count++] = entry;
}

static nvmlReturn_t collect(nvmlDevice_t device, struct processes *p)
{
	VIEW_DEVICE(v, device);

	p->count = 0;
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++)
		if (concerns(&v, &v.m->clients[i]))
			add_client(p, &v.m->clients[i]);
	return NVML_SUCCESS;
}

/* NVML's protocol of count and buffer. True: fill `n` entries; else return *status. */
static bool has_room(unsigned int *count, const void *buffer, unsigned int n, nvmlReturn_t *status)
{
	unsigned int room = *count;

	*count = n;
	*status = NVML_SUCCESS;
	if (!n)
		return false;
	if (room < n)
		*status = NVML_ERROR_INSUFFICIENT_SIZE;
	else if (!buffer)
		*status = NVML_ERROR_INVALID_ARGUMENT;
	return *status == NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_t *infos)
{
	struct processes p;
	nvmlReturn_t status = collect(device, &p);

	if (status)
		return status;
	if (!infoCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_room(infoCount, infos, p.count, &status))
		return status;
	for (unsigned int i = 0; i < p.count; i++)
		infos[i] = p.list[i];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_v2_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
						  nvmlProcessInfo_v1_t *infos)
{
	struct processes p;
	nvmlReturn_t status = collect(device, &p);

	if (status)
		return status;
	if (!infoCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_room(infoCount, infos, p.count, &status))
		return status;
	for (unsigned int i = 0; i < p.count; i++)
		infos[i] = (nvmlProcessInfo_v1_t){ .pid = p.list[i].pid, .usedGpuMemory = p.list[i].usedGpuMemory };
	return NVML_SUCCESS;
}

/* The simulated driver runs no graphics and no MPS server. */
static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count)
{
	VIEW_DEVICE(v, device);
	return put_uint(count, 0);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
						      nvmlProcessInfo_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
						      nvmlProcessInfo_v2_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
						   nvmlProcessInfo_v1_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
							nvmlProcessInfo_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
							nvmlProcessInfo_v2_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_v1_t *infos)
{
	(void)infos;
	return no_processes(device, infoCount);
}
