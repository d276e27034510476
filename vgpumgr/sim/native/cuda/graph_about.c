/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs and nodes are known by, attributes of kernels in graphs, and child graphs that are changed where they run. */
#include <string.h>

#include "graph.h"

CUresult cuGraphGetId(CUgraph handle, unsigned int *id)
{
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = id ? graph_get(handle, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*id = g->number;
	return r;
}

CUresult cuGraphExecGetId(CUgraphExec handle, unsigned int *id)
{
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = id && handle_is(handle, HANDLE_GRAPH_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*id = ((struct graph_exec *)handle)->number;
	return r;
}

#define OF_NODE(name, out_type, value)                                                \
	CUresult name(CUgraphNode handle, out_type *out)                              \
	{                                                                             \
		struct graph_node *node;                                              \
		CUresult r;                                                           \
                                                                                      \
		DRIVER_CHECK();                                                       \
		DRV_LOCKED();                                                         \
		r = out ? node_get(handle, &node) : CUDA_ERROR_INVALID_VALUE;         \
		if (r == CUDA_SUCCESS)                                                \
			*out = value;                                                 \
		return r;                                                             \
	}

OF_NODE(cuGraphNodeGetContainingGraph, CUgraph, (CUgraph)node->graph)
OF_NODE(cuGraphNodeGetLocalId, unsigned int, node->number)
OF_NODE(cuGraphNodeGetToolsId, unsigned long long, (unsigned long long)node->graph->number << 32 | node->number)

/* ---- attributes */

static CUresult kernel_get(CUgraphNode handle, struct graph_node **out)
{
	CUresult r = node_get(handle, out);

	return r == CUDA_SUCCESS && (*out)->type != CU_GRAPH_NODE_TYPE_KERNEL ? CUDA_ERROR_INVALID_VALUE : r;
}

/* As far as they have one. */
static CUresult read_attribute(const struct graph_kernel *k, CUkernelNodeAttrID id, CUkernelNodeAttrValue *out)
{
	memset(out, 0, sizeof(*out));
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		out->cooperative = k->options.cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		out->clusterDim.x = k->options.cluster[0];
		out->clusterDim.y = k->options.cluster[1];
		out->clusterDim.z = k->options.cluster[2];
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		out->clusterSchedulingPolicyPreference = k->scheduling;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		out->sharedMemCarveout = k->carveout;
		return CUDA_SUCCESS;
	default:
		return cuda_stream_attribute_get(&k->tuning, id, out);
	}
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, CUkernelNodeAttrValue *out)
{
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = out ? cuda_check_kernel_attribute(id, NULL) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = kernel_get(handle, &node);
	return r == CUDA_SUCCESS ? read_attribute(&node->kernel, id, out) : r;
}

static CUresult set_clusters(struct context *ctx, struct graph_kernel *k, const CUkernelNodeAttrValue *value)
{
	CUlaunchConfig config = { .gridDimX = k->grid[0], .gridDimY = k->grid[1], .gridDimZ = k->grid[2] };
	struct cuda_launch_options options = { .cluster = { value->clusterDim.x, value->clusterDim.y, value->clusterDim.z } };
	struct cuda_cluster_limits limits;
	struct function *f;
	CUresult r = function_get(k->function, ctx, &f);

	if (r != CUDA_SUCCESS)
		return r;
	function_clusters(f, ctx->dev, &limits);
	r = cuda_check_clusters(&config, &limits, &options);
	if (r == CUDA_SUCCESS)
		memcpy(k->options.cluster, options.cluster, sizeof(options.cluster));
	return r;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
	struct graph_node *node;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = value ? cuda_check_kernel_attribute(id, value) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	r = kernel_get(handle, &node);
	drv_unlock();
	if (r != CUDA_SUCCESS)
		return r;
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		node->kernel.options.cooperative = value->cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return set_clusters(ctx, &node->kernel, value);
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		node->kernel.scheduling = value->clusterSchedulingPolicyPreference;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		node->kernel.carveout = value->sharedMemCarveout;
		return CUDA_SUCCESS;
	default:
		return cuda_stream_attribute_set(&node->kernel.tuning, id, value);
	}
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	struct graph_node *a, *b;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = kernel_get(to, &a);
	if (r == CUDA_SUCCESS)
		r = kernel_get(from, &b);
	if (r != CUDA_SUCCESS)
		return r;
	a->kernel.options = b->kernel.options;
	a->kernel.tuning = b->kernel.tuning;
	a->kernel.scheduling = b->kernel.scheduling;
	a->kernel.carveout = b->kernel.carveout;
	return CUDA_SUCCESS;
}
