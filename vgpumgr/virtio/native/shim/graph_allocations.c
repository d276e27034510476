/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that allocate memory and free it. What may be done with them is known here; to the worker the memory is memory as any
 * other, charged from its node on, and the node an empty one, which keeps the order.
 */
#include "graph_allocations.h"
#include "captures.h"
#include "graph_handles.h"

static CUresult allocate(void *in, struct shim_range *got)
{
	struct vg_memory_allocate_reply out;
	CUresult r = vg_send_memory_allocate(in, &out);

	got->start = out.address;
	return r;
}

static CUresult take(uint64_t context, CUdevice device, size_t bytes, struct graph_block *what)
{
	struct vg_memory_allocate_request in = { .context = context, .bytes = bytes };
	struct shim_range got = { .bytes = bytes, .context = context, .pooled = true }; /* of no use to other processes */
	CUresult r = shim_allocate(&got, allocate, &in);

	*what = (struct graph_block){ .context = context, .address = got.start, .bytes = bytes, .device = device };
	return r;
}

/* Memory that got no node. */
static void give(const struct graph_block *what)
{
	struct vg_memory_free_request in = { .context = what->context, .address = what->address };
	struct shim_range range;

	if (shim_range_find(SHIM_RANGE_DEVICE, what->address, &range) && shim_range_remove(SHIM_RANGE_DEVICE, &range))
		vg_send_memory_free(&in);
}

/* Of a node that is there. */
static CUresult enter(CUgraphNode handle, const struct graph_block *what)
{
	struct shim_object *graph;
	struct shim_node node;
	CUresult r = shim_node(handle, &node);

	graph = r == CUDA_SUCCESS ? shim_object_get(SHIM_GRAPH, node.graph) : NULL;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	return what->bytes ? graph_blocks_allocate(&graph->graph.blocks, node.graph, node.number, what) :
			     graph_blocks_free(&graph->graph.blocks, node.graph, node.number, what->address);
}

/* Child graphs may have none, as documented. */
static CUresult check_graph(CUgraph hGraph, const CUgraphNode *out)
{
	const struct shim_object *o;
	uint64_t id;
	CUresult r = out ? shim_graph(hGraph, &id) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_GRAPH, id);
	return o && !o->graph.parent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
		    const struct graph_block *what)
{
	CUresult r = cuGraphAddEmptyNode(out, hGraph, dependencies, count);

	if (r != CUDA_SUCCESS)
		return r;
	r = enter(*out, what);
	if (r != CUDA_SUCCESS)
		shim_node_undo(*out);
	return r;
}

SHIM_API CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					 size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct graph_block what;
	uint32_t devices = 0;
	uint64_t context;
	CUdevice device;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = check_graph(hGraph, phGraphNode);
	if (r == CUDA_SUCCESS)
		r = shim_device_count(&devices);
	if (r == CUDA_SUCCESS)
		r = cuCtxGetDevice(&device);
	if (r == CUDA_SUCCESS)
		r = cuda_check_graph_allocation(nodeParams, device, (int)devices);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("memory of a graph for other processes or devices", &told);
	if (r == CUDA_SUCCESS)
		r = take(context, device, nodeParams->bytesize, &what);
	if (r != CUDA_SUCCESS)
		return r;
	r = add(phGraphNode, hGraph, dependencies, numDependencies, &what);
	if (r == CUDA_SUCCESS)
		nodeParams->dptr = what.address;
	else
		give(&what);
	return r;
}

SHIM_API CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					size_t numDependencies, CUdeviceptr dptr)
{
	const struct graph_block what = { .address = dptr };
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = check_graph(hGraph, phGraphNode);
	if (r == CUDA_SUCCESS)
		r = graph_blocks_may_free(dptr);
	return r == CUDA_SUCCESS ? add(phGraphNode, hGraph, dependencies, numDependencies, &what) : r;
}

/* ---- captured: an empty node that the program adds, and goes on behind */

static CUresult capture(CUstream stream, uint64_t context, uint64_t id, const struct graph_block *what)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *dependencies = NULL;
	CUgraph graph = NULL;
	CUgraphNode node;
	size_t count = 0;
	CUresult r = cuStreamGetCaptureInfo_v3(stream, &status, NULL, &graph, &dependencies, NULL, &count);

	if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r == CUDA_SUCCESS && shim_graph_is_inside((uint64_t)graph))
		r = shim_capture_spoil(context, id);
	if (r == CUDA_SUCCESS)
		r = cuGraphAddEmptyNode(&node, graph, dependencies, count);
	if (r == CUDA_SUCCESS)
		r = cuStreamUpdateCaptureDependencies(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	return r == CUDA_SUCCESS ? enter(node, what) : r;
}

CUresult shim_capture_allocation(CUstream stream, uint64_t id, uint64_t context, CUdevice device, size_t bytes, CUdeviceptr *out)
{
	struct graph_block what;
	CUresult r = take(context, device, bytes, &what);

	if (r != CUDA_SUCCESS)
		return r;
	r = capture(stream, context, id, &what);
	if (r == CUDA_SUCCESS)
		*out = what.address;
	else
		give(&what);
	return r;
}

CUresult shim_capture_free(CUstream stream, uint64_t id, uint64_t context, CUdeviceptr address, bool *captured)
{
	const struct graph_block what = { .address = address };
	CUresult r = address ? graph_blocks_may_free(address) : CUDA_SUCCESS;

	*captured = true;
	return r == CUDA_SUCCESS && address ? capture(stream, context, id, &what) : r;
}

/* ---- asked */

static CUresult find(CUgraphNode hNode, bool wanted, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	const struct shim_object *graph;
	struct shim_node node;
	bool frees;
	CUresult r = shim_node(hNode, &node);

	graph = r == CUDA_SUCCESS ? shim_object_get(SHIM_GRAPH, node.graph) : NULL;
	return graph && graph_blocks_find(&graph->graph.blocks, node.number, &frees, params) && frees == wanted ?
		       CUDA_SUCCESS :
		       CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUresult r = params_out ? find(hNode, false, &params) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*params_out = params;
	return r;
}

SHIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUresult r = dptr_out ? find(hNode, true, &params) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*dptr_out = params.dptr;
	return r;
}

static CUresult check_device(CUdevice device)
{
	const struct shim_device *d;

	return shim_device(device, &d);
}

/* Nothing is kept that no graph has. */
SHIM_API CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	return check_device(device);
}

SHIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult r = check_device(device);

	return r == CUDA_SUCCESS ? graph_memory_attribute(device, attr, false, value) : r;
}

SHIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult r = check_device(device);

	return r == CUDA_SUCCESS ? graph_memory_attribute(device, attr, true, value) : r;
}
