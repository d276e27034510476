/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of a driver that runs nothing: nodes are objects of their graph, and each comes after the one made before it. */
#include "nodes.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
	null_check(NULL_GRAPH, graph);
	for (size_t i = 0; i < count; i++)
		if (null_owner(NULL_NODE, dependencies[i]) != graph)
			null_abort("a dependency on a node of another graph");
	*node = null_owned(NULL_NODE, graph);
	return CUDA_SUCCESS;
}

CUresult null_add_marked(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, int mark, void *kept)
{
	CUresult r = add(node, graph, dependencies, count);

	null_mark(*node, mark);
	null_kept(*node)[0] = kept;
	return r;
}

CUresult null_change(CUgraphExec exec, CUgraphNode node)
{
	if (exec)
		null_check(NULL_GRAPH_EXEC, exec);
	null_check(NULL_NODE, node);
	return CUDA_SUCCESS;
}

static void read_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	if (!p->func)
		null_abort("a kernel node without a function");
}

/* A side that is the worker's memory is written, as far as it goes: too little of it is noticed. */
static void read_side(CUmemorytype type, CUdeviceptr device, const void *host, size_t bytes)
{
	if (type == CU_MEMORYTYPE_HOST)
		memset((void *)host, 0, bytes);
	else
		null_check_memory(device, bytes);
}

static void read_copy(const CUDA_MEMCPY3D *c)
{
	size_t rows = c->Height - 1, slices = c->Depth - 1;

	read_side(c->dstMemoryType, c->dstDevice, c->dstHost,
		  slices * c->dstPitch * c->dstHeight + rows * c->dstPitch + c->WidthInBytes);
	read_side(c->srcMemoryType, c->srcDevice, c->srcHost,
		  slices * c->srcPitch * c->srcHeight + rows * c->srcPitch + c->WidthInBytes);
}

/* What a host node has, and whether a graph has one: the last of them is called at a launch. */
static void keep_host(void *object, const CUDA_HOST_NODE_PARAMS *params)
{
	null_kept(object)[0] = (void *)params->fn;
	null_kept(object)[1] = params->userData;
}

static void read_fill(const CUDA_MEMSET_NODE_PARAMS *m)
{
	if (m->width && m->height)
		null_check_memory(m->dst, (m->height - 1) * m->pitch + m->width * m->elementSize);
}

NULL_API CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	ENTER;
	(void)flags;
	*graph = null_object(NULL_GRAPH);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphDestroy(CUgraph graph)
{
	null_end(NULL_GRAPH, graph);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	ENTER;
	null_check(NULL_GRAPH, graph);
	if (null_is_marked(graph) == DECIDES)
		return CUDA_ERROR_INVALID_VALUE;
	*clone = null_object(NULL_GRAPH);
	memcpy(null_kept(*clone), null_kept(graph), 2 * sizeof(void *));
	return CUDA_SUCCESS;
}

static void copy_contents(CUgraphNode to, CUgraphNode from);

NULL_API CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone)
{
	CUresult r;

	null_check(NULL_NODE, node);
	r = add(found, clone, NULL, 0);
	if (r == CUDA_SUCCESS)
		copy_contents(*found, node);
	return r;
}

NULL_API CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
					  const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	ENTER;
	read_kernel(params);
	return null_add_marked(node, graph, dependencies, count, IS_KERNEL, params->func);
}

NULL_API CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
				       const CUDA_MEMCPY3D *params, CUcontext context)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	read_copy(params);
	return null_add_marked(node, graph, dependencies, count, IS_DEVICE_COPY, NULL);
}

NULL_API CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
				       const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	read_fill(params);
	return null_add_marked(node, graph, dependencies, count, IS_FILL, (void *)params->dst);
}

NULL_API CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					    size_t count, CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	return null_add_marked(node, graph, dependencies, count, IS_EVENT, event);
}

NULL_API CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
					  CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	return null_add_marked(node, graph, dependencies, count, IS_WAIT, event);
}

NULL_API CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
	ENTER;
	return add(node, graph, dependencies, count);
}

/* A copy of the child, which ends with its node. */
static void put_child(CUgraphNode node, CUgraph child)
{
	CUgraph copy = null_owned(NULL_GRAPH, node);
	void *list[16];
	size_t count = null_list(child, list, 16);

	null_mark(node, IS_GRAPH);
	for (size_t i = count; i--;)
		copy_contents(null_owned(NULL_NODE, copy), list[i]);
}

static void copy_contents(CUgraphNode to, CUgraphNode from)
{
	int mark = null_is_marked(from);
	CUgraph child;

	null_mark(to, mark);
	memcpy(null_kept(to), null_kept(from), 2 * sizeof(void *));
	if (mark == IS_GRAPH && null_list(from, (void **)&child, 1))
		put_child(to, child);
}

NULL_API CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
					   CUgraph child)
{
	CUresult r;

	ENTER;
	null_check(NULL_GRAPH, child);
	if (null_is_marked(child) == DECIDES)
		return CUDA_ERROR_INVALID_VALUE;
	r = add(node, graph, dependencies, count);
	if (r == CUDA_SUCCESS)
		put_child(*node, child);
	if (r == CUDA_SUCCESS && null_kept(child)[0])
		memcpy(null_kept(graph), null_kept(child), 2 * sizeof(void *));
	return r;
}

NULL_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
	ENTER;
	null_check(NULL_NODE, node);
	if (null_node_type(node) != CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	null_list(node, (void **)child, 1);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	ENTER;
	null_check(NULL_GRAPH, child);
	memcpy(null_kept(exec), null_kept(child), 2 * sizeof(void *));
	return null_change(exec, node);
}

NULL_API CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
				     const CUDA_HOST_NODE_PARAMS *params)
{
	CUresult r;

	ENTER;
	r = add(node, graph, dependencies, count);
	if (r != CUDA_SUCCESS)
		return r;
	null_mark(*node, IS_HOST);
	keep_host(*node, params);
	keep_host(graph, params);
	return r;
}

NULL_API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
	ENTER;
	null_check(NULL_NODE, node);
	if (null_node_type(node) != CU_GRAPH_NODE_TYPE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	*params = (CUDA_HOST_NODE_PARAMS){ .fn = (CUhostFn)null_kept(node)[0], .userData = null_kept(node)[1] };
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	ENTER;
	null_check(NULL_NODE, node);
	if (null_node_type(node) != CU_GRAPH_NODE_TYPE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	keep_host(node, params);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	ENTER;
	if (null_node_type(node) != CU_GRAPH_NODE_TYPE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	keep_host(exec, params);
	return null_change(exec, node);
}

NULL_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	ENTER;
	read_kernel(params);
	return null_change(NULL, node);
}

NULL_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
	ENTER;
	read_copy(params);
	return null_change(NULL, node);
}

NULL_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
	ENTER;
	read_fill(params);
	return null_change(NULL, node);
}

NULL_API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	return null_change(NULL, node);
}

NULL_API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	return cuGraphEventRecordNodeSetEvent(node, event);
}

NULL_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
						    const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	ENTER;
	read_kernel(params);
	return null_change(exec, node);
}

NULL_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
						 CUcontext context)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	read_copy(params);
	return null_change(exec, node);
}

NULL_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
						 const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	ENTER;
	null_check(NULL_CONTEXT, context);
	read_fill(params);
	return null_change(exec, node);
}

NULL_API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	ENTER;
	null_check(NULL_EVENT, event);
	return null_change(exec, node);
}

NULL_API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	return cuGraphExecEventRecordNodeSetEvent(exec, node, event);
}

static CUresult check_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	null_check(NULL_GRAPH, graph);
	for (size_t i = 0; i < count; i++)
		if (null_owner(NULL_NODE, from[i]) != graph || null_owner(NULL_NODE, to[i]) != graph)
			null_abort("an edge to a node of another graph");
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	ENTER;
	return check_edges(graph, from, to, count);
}

NULL_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	ENTER;
	return check_edges(graph, from, to, count);
}

NULL_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ENTER;
	null_check(NULL_GRAPH, graph);
	*count = null_list(graph, (void **)nodes, nodes ? *count : 0);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return cuGraphGetNodes(graph, nodes, count);
}

/* From each node to itself: as many as there are nodes. */
NULL_API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	CUresult r = cuGraphGetNodes(graph, from, count);

	if (r == CUDA_SUCCESS && from)
		memcpy(to, from, *count * sizeof(CUgraphNode));
	return r;
}

NULL_API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return cuGraphGetNodes(null_owner(NULL_NODE, node), nodes, count);
}

NULL_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return cuGraphNodeGetDependencies(node, nodes, count);
}

NULL_API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	ENTER;
	null_check(NULL_NODE, node);
	*type = null_node_type(node);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphDestroyNode(CUgraphNode node)
{
	ENTER;
	null_disown(node);
	null_end(NULL_NODE, node);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	ENTER;
	(void)flags;
	null_check(NULL_GRAPH, graph);
	*exec = null_object(NULL_GRAPH_EXEC);
	memcpy(null_kept(*exec), null_kept(graph), 2 * sizeof(void *));
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	null_end(NULL_GRAPH_EXEC, exec);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	ENTER;
	null_check(NULL_GRAPH_EXEC, exec);
	null_check(NULL_GRAPH, graph);
	memcpy(null_kept(exec), null_kept(graph), 2 * sizeof(void *));
	info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	ENTER;
	null_check(NULL_GRAPH_EXEC, exec);
	null_check_stream(stream);
	return null_kept(exec)[0] ? cuLaunchHostFunc(stream, (CUhostFn)null_kept(exec)[0], null_kept(exec)[1]) : CUDA_SUCCESS;
}

NULL_API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	ENTER;
	(void)enabled;
	return null_change(exec, node);
}

NULL_API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	ENTER;
	*enabled = 1;
	return null_change(exec, node);
}

/*
 * Capture: what is put into such a stream is done as ever, and one node stands for it. Every other time that is a copy
 * from and to memory of the host, as if it had slipped in: the worker must not keep such a graph. Who asks what the stream
 * depends on finds the graph, which is the capture's from then on, with a node more than before. A stream's mark is the
 * capture's number, or negative once the capture is invalid.
 */
static _Atomic unsigned int captured;
static _Atomic int begun;

enum { LISTED = 8 };

NULL_API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	ENTER;
	(void)mode;
	null_check(NULL_STREAM, stream);
	if (null_is_marked(stream))
		return CUDA_ERROR_ILLEGAL_STATE;
	null_mark(stream, 1 + (atomic_fetch_add(&begun, 1) & INT_MAX >> 1));
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
					      size_t count, CUstreamCaptureMode mode)
{
	CUresult r;

	(void)data;
	null_check(NULL_GRAPH, graph);
	for (size_t i = 0; i < count; i++)
		if (null_owner(NULL_NODE, nodes[i]) != graph)
			null_abort("a capture behind a node of another graph");
	r = cuStreamBeginCapture_v2(stream, mode);
	if (r == CUDA_SUCCESS)
		null_kept(stream)[1] = graph;
	return r;
}

/* The graph that a stream captures into, if it is the program's, or else the stream's own so far. */
static size_t graph_of(CUstream stream, CUgraph *graph)
{
	*graph = null_kept(stream)[1];
	return *graph ? 1 : null_list(stream, (void **)graph, 1);
}

/* The program's graph stays, the capture's goes. */
static CUresult end_invalid(CUstream stream, CUgraph *graph)
{
	if (!null_kept(stream)[1] && graph_of(stream, graph)) {
		null_disown(*graph);
		null_end(NULL_GRAPH, *graph);
	}
	null_kept(stream)[1] = NULL;
	*graph = NULL;
	return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

NULL_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUgraphNode node;
	int capture;

	ENTER;
	capture = stream ? null_mark(stream, 0) : 0;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture < 0)
		return end_invalid(stream, graph);
	if (null_kept(stream)[1])
		graph_of(stream, graph);
	else if (graph_of(stream, graph))
		null_disown(*graph);
	else
		*graph = null_object(NULL_GRAPH);
	null_kept(stream)[1] = NULL;
	add(&node, *graph, NULL, 0);
	null_mark(node, atomic_fetch_add(&captured, 1) % 2);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number,
					    CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
	static _Thread_local CUgraphNode listed[LISTED];
	CUgraphNode node;
	int capture;

	null_check_stream(stream);
	capture = stream ? null_is_marked(stream) : 0;
	*status = capture > 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE :
		  capture     ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
				CU_STREAM_CAPTURE_STATUS_NONE;
	if (number && capture > 0)
		*number = (cuuint64_t)capture;
	if (!graph || capture <= 0)
		return CUDA_SUCCESS;
	if (!graph_of(stream, graph))
		*graph = null_owned(NULL_GRAPH, stream);
	if (null_list(*graph, NULL, 0) < LISTED)
		add(&node, *graph, NULL, 0);
	*count = null_list(*graph, (void **)listed, LISTED);
	*dependencies = listed;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
{
	ENTER;
	(void)flags;
	null_check(NULL_STREAM, stream);
	for (size_t i = 0; i < count; i++)
		null_check(NULL_NODE, nodes[i]);
	return CUDA_SUCCESS;
}

/* What the worker keeps for copies in graphs. */
NULL_API CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	ENTER;
	(void)flags;
	*memory = bytes <= 1ull << 32 ? malloc(bytes) : NULL;
	return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* One range is enough: the worker's window. */
static _Atomic(void *) registered;

NULL_API CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	ENTER;
	(void)bytes;
	(void)flags;
	registered = memory;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuMemHostGetFlags(unsigned int *flags, void *memory)
{
	*flags = 0;
	return memory == registered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

NULL_API CUresult cuMemFreeHost(void *memory)
{
	free(memory);
	return CUDA_SUCCESS;
}
