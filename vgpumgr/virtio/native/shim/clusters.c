/* SPDX-License-Identifier: Apache-2.0 */
/* How large clusters can be, and how many there can be at once: the worker's driver knows. */
#include "graph.h"

static CUresult ask(int *value, CUfunction func, const CUlaunchConfig *config, bool count)
{
	struct vg_occupancy_clusters_request in = { .count = count };
	struct vg_occupancy_clusters_reply out;
	struct cuda_launch_options options;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !value)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = cuda_read_launch_attributes(config, &options);
	if (r == CUDA_SUCCESS)
		r = shim_function_object(func, &o);
	if (r == CUDA_SUCCESS && count)
		r = shim_check_clusters(config, o, &options);
	if (r == CUDA_SUCCESS)
		r = shim_function(func, &in.context, &in.function);
	if (r != CUDA_SUCCESS)
		return r;
	in.grid_x = config->gridDimX, in.grid_y = config->gridDimY, in.grid_z = config->gridDimZ;
	in.block_x = config->blockDimX, in.block_y = config->blockDimY, in.block_z = config->blockDimZ;
	in.shared_bytes = config->sharedMemBytes;
	in.cluster_x = options.cluster[0], in.cluster_y = options.cluster[1], in.cluster_z = options.cluster[2];
	r = vg_send_occupancy_clusters(&in, &out);
	if (r == CUDA_SUCCESS)
		*value = (int)out.value;
	return r;
}

SHIM_API CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
	return ask(clusterSize, func, config, false);
}

SHIM_API CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
	return ask(numClusters, func, config, true);
}
