/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program reads back of a graph's nodes. The worker's driver has it, also of nodes that were captured; functions of the
 * program and its memory it knows by numbers only, and those are looked up here.
 */
#include <string.h>

#include "graph_reads.h"
#include "graph_records.h"
#include "hosts.h"

static CUresult keep(const struct shim_node *node, const struct shim_object *f, const uint8_t *bytes, void ***values)
{
	struct shim_object *graph = shim_object_get(SHIM_GRAPH, node->graph);

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	*values = shim_kept(graph, node->number, f, bytes);
	return *values ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- by type */

/* A copy within the program's memory is a function of its own there. */
static CUresult ask(const struct shim_node *node, struct vg_graph_node_read_reply *out, struct shim_host *host)
{
	struct vg_graph_node_read_request in = { .graph = node->graph, .node = node->number };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const struct shim_object *graph;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = vg_send_graph_node_read(&in, out);
	if (r != CUDA_SUCCESS || !out->number)
		return r;
	graph = shim_object_get(SHIM_GRAPH, node->graph);
	if (!graph || !shim_host_find(out->number, host))
		return shim_unsupported("reading a graph's node that a library made", &told);
	if (host->kind == SHIM_HOST_BOTH)
		out->type = CU_GRAPH_NODE_TYPE_MEMCPY;
	return CUDA_SUCCESS;
}

CUresult shim_node_read(CUgraphNode hNode, CUgraphNodeType type, const void *wanted, struct shim_node *node,
			struct vg_graph_node_read_reply *out, struct shim_host *host)
{
	CUresult r = wanted ? shim_node(hNode, node) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = ask(node, out, host);
	return r == CUDA_SUCCESS && out->type != (uint32_t)type ? CUDA_ERROR_INVALID_VALUE : r;
}

/* Of nodes that the worker has as empty ones. */
static uint32_t memory_type(const struct shim_node *node)
{
	const struct shim_object *graph = shim_object_get(SHIM_GRAPH, node->graph);
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	bool frees;

	if (!graph || !graph_blocks_find(&graph->graph.blocks, node->number, &frees, &params))
		return CU_GRAPH_NODE_TYPE_EMPTY;
	return frees ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_MEM_ALLOC;
}

CUresult shim_node_type(const struct shim_node *node, uint32_t *type)
{
	struct vg_graph_node_type_request in = { .graph = node->graph, .node = node->number };
	struct vg_graph_node_type_reply out;
	struct vg_graph_node_read_reply all;
	struct shim_host host;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = vg_send_graph_node_type(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	*type = out.type;
	if (out.type == CU_GRAPH_NODE_TYPE_EMPTY)
		*type = memory_type(node);
	if (out.type == CU_GRAPH_NODE_TYPE_HOST && ask(node, &all, &host) == CUDA_SUCCESS)
		*type = all.type;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_node_read_reply out;
	const struct shim_object *f;
	struct shim_node node;
	void **values;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, &node, &out, &(struct shim_host){ 0 });

	if (r != CUDA_SUCCESS)
		return r;
	f = shim_object_get(SHIM_FUNCTION, out.object);
	if (!f || out.parameters_length != f->function.parameters_bytes)
		return shim_unsupported("reading a kernel's node that a library made, or whose module is unloaded,", &told);
	r = keep(&node, f, out.parameters, &values);
	if (r != CUDA_SUCCESS)
		return r;
	*nodeParams = (CUDA_KERNEL_NODE_PARAMS_v2){ .func = (CUfunction)out.object, .sharedMemBytes = out.shared_bytes,
						    .kernelParams = values };
	nodeParams->gridDimX = out.grid_x, nodeParams->gridDimY = out.grid_y, nodeParams->gridDimZ = out.grid_z;
	nodeParams->blockDimX = out.block_x, nodeParams->blockDimY = out.block_y, nodeParams->blockDimZ = out.block_z;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params;
	CUresult r = nodeParams ? cuGraphKernelNodeGetParams_v2(hNode, &params) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		memcpy(nodeParams, &params, sizeof(*nodeParams));
	return r;
}

/* A copy that the program's memory is a side of is as the program gave it, but for what it may have left to the driver. */
static struct cuda_copy copy_of(const struct vg_graph_node_read_reply *out, const struct shim_host *host)
{
	struct cuda_copy copy = host->copy;

	copy.to.type = host->kind == SHIM_HOST_READ ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	copy.from.type = host->kind == SHIM_HOST_WRITTEN ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (out->number)
		return copy;
	return (struct cuda_copy){
		.to = { .type = CU_MEMORYTYPE_DEVICE, .base = out->destination, .pitch = out->destination_pitch,
			.slice = out->destination_slice },
		.from = { .type = CU_MEMORYTYPE_DEVICE, .base = out->source, .pitch = out->source_pitch,
			  .slice = out->source_slice },
		.width = out->width,
		.rows = out->rows,
		.slices = out->slices,
	};
}

static size_t height_of(const struct cuda_side *side)
{
	return side->pitch ? side->slice / side->pitch : 0;
}

SHIM_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	struct vg_graph_node_read_reply out;
	struct shim_host host = { 0 };
	struct shim_node node;
	struct cuda_copy c;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, &node, &out, &host);

	if (r != CUDA_SUCCESS)
		return r;
	c = copy_of(&out, &host);
	*nodeParams = (CUDA_MEMCPY3D){ .srcMemoryType = c.from.type, .srcPitch = c.from.pitch, .srcHeight = height_of(&c.from),
				       .dstMemoryType = c.to.type, .dstPitch = c.to.pitch, .dstHeight = height_of(&c.to),
				       .WidthInBytes = c.width, .Height = c.rows, .Depth = c.slices };
	if (c.from.type == CU_MEMORYTYPE_HOST)
		nodeParams->srcHost = (const void *)c.from.base;
	else
		nodeParams->srcDevice = c.from.base;
	if (c.to.type == CU_MEMORYTYPE_HOST)
		nodeParams->dstHost = (void *)c.to.base;
	else
		nodeParams->dstDevice = c.to.base;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct vg_graph_node_read_reply out;
	struct shim_node node;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, &node, &out, &(struct shim_host){ 0 });

	if (r == CUDA_SUCCESS)
		*nodeParams = (CUDA_MEMSET_NODE_PARAMS){ out.destination, out.destination_pitch, out.value, out.element,
							 out.width, out.rows };
	return r;
}

SHIM_API CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_node_read_reply out;
	struct shim_host host = { 0 };
	struct shim_node node;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, &node, &out, &host);

	if (r == CUDA_SUCCESS && !out.number)
		return shim_unsupported("reading a function's node that a library made", &told);
	if (r == CUDA_SUCCESS)
		*nodeParams = (CUDA_HOST_NODE_PARAMS){ .fn = host.function, .userData = host.data };
	return r;
}

static CUresult read_event(CUgraphNode hNode, CUgraphNodeType type, CUevent *event)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_node_read_reply out;
	struct shim_node node;
	CUresult r = shim_node_read(hNode, type, event, &node, &out, &(struct shim_host){ 0 });

	if (r == CUDA_SUCCESS && !out.object)
		return shim_unsupported("reading an event's node whose event is destroyed", &told);
	if (r == CUDA_SUCCESS)
		*event = (CUevent)out.object;
	return r;
}

SHIM_API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return read_event(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

SHIM_API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	return read_event(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}
