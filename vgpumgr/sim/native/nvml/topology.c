/* SPDX-License-Identifier: Apache-2.0 */
/* Where the GPUs sit: PCIe links, NUMA nodes, processors nearby. */
#include <stdlib.h>
#include <string.h>

#include "nvml_sim.h"

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type)
{
	VIEW_DEVICE(v, device);
	return put_uint(type, NVML_BUS_TYPE_PCIE);
}

static nvmlReturn_t link_generation(nvmlDevice_t device, unsigned int *generation)
{
	VIEW_GPU(v, device);
	return put_uint(generation, v.gpu->pcie_gen);
}

static nvmlReturn_t link_width(nvmlDevice_t device, unsigned int *width)
{
	VIEW_GPU(v, device);
	return put_uint(width, v.gpu->pcie_width);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen)
{
	return link_generation(device, maxLinkGen);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGenDevice)
{
	return link_generation(device, maxLinkGenDevice);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *currLinkGen)
{
	return link_generation(device, currLinkGen);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth)
{
	return link_width(device, maxLinkWidth);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *currLinkWidth)
{
	return link_width(device, currLinkWidth);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value)
{
	VIEW_GPU(v, device);

	if (counter >= NVML_PCIE_UTIL_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	return put_uint(value, 0); /* copies of the simulated driver cross no link */
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value)
{
	VIEW_GPU(v, device);
	return put_uint(value, 0);
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
	VIEW_GPU(v, device);

	/* this call means the node of the GPU's own memory, which only coherent platforms have */
	return node ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}

static void set_bit(unsigned long *set, unsigned int words, unsigned long bit)
{
	const unsigned long width = 8 * sizeof(*set);

	if (bit / width < words)
		set[bit / width] |= 1ul << bit % width;
}

/* "0-15,128-143" as a bit set, as in /sys/devices/system/node/nodeN/cpulist. */
static void fill_cpus(const char *list, unsigned long *set, unsigned int words)
{
	while (*list) {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			return;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long cpu = first; cpu <= last && cpu < words * 8 * sizeof(*set); cpu++)
			set_bit(set, words, cpu);
		list = *end == ',' ? end + 1 : end;
	}
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet,
						 nvmlAffinityScope_t scope)
{
	VIEW_GPU(v, device);

	if (!cpuSet || !cpuSetSize || scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(cpuSet, 0, cpuSetSize * sizeof(*cpuSet));
	fill_cpus(v.gpu->cpus, cpuSet, cpuSetSize);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet)
{
	return nvmlDeviceGetCpuAffinityWithinScope(device, cpuSetSize, cpuSet, NVML_AFFINITY_SCOPE_NODE);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize, unsigned long *nodeSet,
					 nvmlAffinityScope_t scope)
{
	VIEW_GPU(v, device);

	if (!nodeSet || !nodeSetSize || scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (v.gpu->numa_node < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(nodeSet, 0, nodeSetSize * sizeof(*nodeSet));
	set_bit(nodeSet, nodeSetSize, (unsigned long)v.gpu->numa_node);
	return NVML_SUCCESS;
}

static nvmlGpuTopologyLevel_t common_ancestor(const struct sim_gpu *a, const struct sim_gpu *b)
{
	if (a->pcie_switch == b->pcie_switch)
		return NVML_TOPOLOGY_SINGLE;
	return a->numa_node == b->numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
}

/* The other device of a pair, in the same view; NULL if the handle is not a GPU's. */
static const struct sim_gpu *second_gpu(const struct view *v, nvmlDevice_t device)
{
	for (uint32_t i = 0; i < v->m->n_gpus; i++)
		if (gpu_handle(i) == device)
			return &v->m->gpus[i];
	return NULL;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
						 nvmlGpuTopologyLevel_t *pathInfo)
{
	const struct sim_gpu *other;
	VIEW_GPU(v, device1);

	other = second_gpu(&v, device2);
	if (!other || !pathInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pathInfo = other == v.gpu ? NVML_TOPOLOGY_INTERNAL : common_ancestor(v.gpu, other);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
					      nvmlDevice_t *deviceArray)
{
	unsigned int found = 0, room;
	VIEW_GPU(v, device);

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	room = deviceArray ? *count : 0;
	for (uint32_t i = 0; i < v.m->n_gpus; i++) {
		if (i == v.gpu_index || v.m->gpus[i].detached || common_ancestor(v.gpu, &v.m->gpus[i]) != level)
			continue;
		if (found < room)
			deviceArray[found] = gpu_handle(i);
		found++;
	}
	*count = deviceArray && found > room ? room : found;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard)
{
	const struct sim_gpu *other;
	VIEW_GPU(v, device1);

	other = second_gpu(&v, device2);
	if (!other || !onSameBoard)
		return NVML_ERROR_INVALID_ARGUMENT;
	*onSameBoard = other == v.gpu;
	return NVML_SUCCESS;
}
