/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: made, asked, made executable, launched. A launch is one frame that nobody waits for. */
#include "graph.h"
#include "captures.h"
#include "graph_children.h"
#include "graph_reads.h"
#include "hosts.h"
#include "managed.h"

#include <stdlib.h>
#include <string.h>

enum { EDGES_AT_ONCE = 1024 };

/* ---- graphs */

SHIM_API CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	struct vg_graph_create_request in;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && (!phGraph || flags))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_GRAPH, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_graph_create(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_GRAPH, in.created);
		return r;
	}
	shim_hosts_begin(o);
	shim_object_publish(o, in.created);
	*phGraph = (CUgraph)in.created;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGraphDestroy(CUgraph hGraph)
{
	struct vg_graph_destroy_request in = { .graph = (uint64_t)hGraph };
	uint64_t context, stream;
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_GRAPH, in.graph);
	if (o && (shim_capture_of_graph(in.graph, &context, &stream) || shim_capture_inside(in.graph)))
		return CUDA_ERROR_ILLEGAL_STATE;
	if (!o || o->graph.parent || !shim_object_retire(o, in.graph))
		return CUDA_ERROR_INVALID_VALUE;
	r = vg_send_graph_destroy(&in);
	shim_children_end(o, SHIM_EVERY_NODE);
	shim_hosts_drop(o);
	shim_object_recycle(SHIM_GRAPH, in.graph);
	return r;
}

/* The other graph may be gone by now: another thread's mistake. */
static CUresult share(enum shim_table table, uint64_t from, struct shim_object *to)
{
	const struct shim_object *o = table == SHIM_GRAPH ? shim_graph_all(from) : shim_object_get(table, from);

	return o ? shim_hosts_share(o, to) : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	struct vg_graph_clone_request in;
	const struct shim_object *original;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = phGraphClone ? shim_graph(originalGraph, &in.graph) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && shim_graph_has_memory(in.graph))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_GRAPH, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_graph_clone(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_GRAPH, in.created);
		return r;
	}
	shim_hosts_begin(o);
	r = share(SHIM_GRAPH, in.graph, o);
	original = shim_object_get(SHIM_GRAPH, in.graph);
	if (original)
		o->graph.origin = original->graph.origin;
	shim_object_publish(o, in.created);
	*phGraphClone = (CUgraph)in.created;
	return r;
}

static bool are_copies(uint64_t a, uint64_t b)
{
	const struct shim_object *x = shim_object_get(SHIM_GRAPH, a), *y = shim_object_get(SHIM_GRAPH, b);

	return x && y && x->graph.origin == y->graph.origin;
}

/* Nodes of a clone have the numbers of those that they were copied from. */
SHIM_API CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	struct shim_node node;
	uint64_t clone;
	uint32_t type;
	CUresult r = phNode ? shim_node(hOriginalNode, &node) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = shim_graph(hClonedGraph, &clone);
	if (r == CUDA_SUCCESS && (clone == node.graph || !are_copies(clone, node.graph)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	node.graph = clone;
	r = shim_node_type(&node, &type);
	*phNode = r == CUDA_SUCCESS ? shim_node_handle(clone, node.number) : NULL;
	return r;
}

SHIM_API CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	struct shim_node node;
	uint32_t found;
	CUresult r = type ? shim_node(hNode, &node) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = shim_node_type(&node, &found);
	if (r == CUDA_SUCCESS)
		*type = found;
	return r;
}

CUresult shim_node_undo(CUgraphNode hNode)
{
	struct vg_graph_node_destroy_request in;
	struct shim_object *graph;
	struct shim_node node;
	CUresult r = shim_node(hNode, &node);

	if (r == CUDA_SUCCESS)
		r = shim_enter(&in.context);
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = node.graph;
	in.node = node.number;
	r = vg_send_graph_node_destroy(&in);
	graph = shim_object_get(SHIM_GRAPH, node.graph);
	if (r == CUDA_SUCCESS && graph)
		shim_children_end(graph, node.number);
	return r;
}

SHIM_API CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	struct shim_node node;
	CUresult r = shim_node(hNode, &node);

	if (r == CUDA_SUCCESS && shim_graph_has_memory(node.graph))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? shim_node_undo(hNode) : r;
}

/* ---- edges */

/* One frame's worth. */
static CUresult send_edges(struct vg_graph_edges_request *in, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	uint32_t numbers[2 * EDGES_AT_ONCE];
	struct shim_node a, b;

	for (size_t i = 0; i < count; i++) {
		CUresult r = shim_node(from[i], &a);

		if (r == CUDA_SUCCESS)
			r = shim_node(to[i], &b);
		if (r == CUDA_SUCCESS && (a.graph != in->graph || b.graph != in->graph))
			r = CUDA_ERROR_INVALID_VALUE;
		if (r != CUDA_SUCCESS)
			return r;
		numbers[2 * i] = a.number;
		numbers[2 * i + 1] = b.number;
	}
	in->edges = (struct vg_bytes){ numbers, 8 * count };
	return vg_send_graph_edges(in);
}

CUresult shim_edges(uint64_t context, uint64_t graph, const CUgraphNode *from, const CUgraphNode *to, size_t count,
		    bool removed)
{
	struct vg_graph_edges_request in = { .context = context, .graph = graph, .remove = removed };
	CUresult r = CUDA_SUCCESS;

	for (size_t at = 0; r == CUDA_SUCCESS && at < count; at += EDGES_AT_ONCE)
		r = send_edges(&in, from + at, to + at, count - at < EDGES_AT_ONCE ? count - at : EDGES_AT_ONCE);
	return r;
}

static CUresult change_edges(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
			     size_t count, bool removed)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	uint64_t context, graph;
	CUresult r = cuda_check_edges(data, count);

	if (r != CUDA_SUCCESS)
		return shim_unsupported("data of a graph's edges", &told);
	r = shim_enter(&context);
	if (r == CUDA_SUCCESS)
		r = count && (!from || !to) ? CUDA_ERROR_INVALID_VALUE : shim_graph(hGraph, &graph);
	if (r == CUDA_SUCCESS && removed && shim_graph_has_memory(graph))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? shim_edges(context, graph, from, to, count, removed) : r;
}

SHIM_API CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
					    const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return change_edges(hGraph, from, to, edgeData, numDependencies, false);
}

SHIM_API CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
					 size_t numDependencies)
{
	return change_edges(hGraph, from, to, NULL, numDependencies, false);
}

SHIM_API CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
					       const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return change_edges(hGraph, from, to, edgeData, numDependencies, true);
}

SHIM_API CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
					    size_t numDependencies)
{
	return change_edges(hGraph, from, to, NULL, numDependencies, true);
}

/* ---- executable graphs */

SHIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	struct vg_graph_instantiate_request in = { .flags = flags };
	struct shim_object *o, *from;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = phGraphExec ? shim_graph(hGraph, &in.graph) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_GRAPH_EXEC, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_graph_instantiate(&in);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_GRAPH_EXEC, in.created);
		return r;
	}
	o->graph.flags = flags;
	shim_hosts_begin(o);
	r = share(SHIM_GRAPH, in.graph, o);
	from = shim_object_get(SHIM_GRAPH, in.graph);
	if (r == CUDA_SUCCESS && from)
		r = graph_blocks_instantiate(&o->graph.blocks, &from->graph.blocks);
	o->graph.decides = from && from->graph.decides;
	shim_object_publish(o, in.created);
	if (r == CUDA_SUCCESS)
		*phGraphExec = (CUgraphExec)in.created;
	else
		cuGraphExecDestroy((CUgraphExec)in.created);
	return r;
}

SHIM_API CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
				     size_t bufferSize)
{
	if (phErrorNode)
		*phErrorNode = NULL;
	if (logBuffer && bufferSize)
		*logBuffer = '\0';
	return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

SHIM_API CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
					char *logBuffer, size_t bufferSize)
{
	return cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SHIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUresult r = p ? cuGraphInstantiateWithFlags(phGraphExec, hGraph, p->flags) : CUDA_ERROR_INVALID_VALUE;

	if (!p)
		return r;
	p->hErrNode_out = NULL;
	p->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}

SHIM_API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
						    CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return cuGraphInstantiateWithParams(phGraphExec, hGraph, p);
}

SHIM_API CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	struct vg_graph_exec_destroy_request in = { .exec = (uint64_t)hGraphExec };
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_GRAPH_EXEC, in.exec);
	if (!o || !shim_object_retire(o, in.exec))
		return CUDA_ERROR_INVALID_VALUE;
	r = vg_send_graph_exec_destroy(&in);
	shim_hosts_drop(o);
	shim_object_recycle(SHIM_GRAPH_EXEC, in.exec);
	return r;
}

SHIM_API CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
	struct shim_object *o = shim_object_get(SHIM_GRAPH_EXEC, (uint64_t)hGraphExec);

	if (!flags || !o)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = o->graph.flags;
	return CUDA_SUCCESS;
}

/* Memory of its own graph it may have, and none other. */
static bool may_update(const struct shim_object *exec, uint64_t graph)
{
	const struct graph_blocks *have = &exec->graph.blocks, *want;
	const struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);

	want = o ? &o->graph.blocks : have;
	return have->count == want->count && (!want->count || want->twin == have);
}

SHIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	struct vg_graph_exec_update_request in;
	struct vg_graph_exec_update_reply out;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !resultInfo)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*resultInfo = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	r = shim_graph_exec(hGraphExec, &in.exec);
	if (r == CUDA_SUCCESS)
		r = shim_graph(hGraph, &in.graph);
	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_GRAPH_EXEC, in.exec);
	if (o && !may_update(o, in.graph)) {
		resultInfo->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	r = vg_send_graph_exec_update(&in, &out);
	if (r == CUDA_SUCCESS && o) { /* a launch that runs has what it needs */
		const struct shim_object *from = shim_object_get(SHIM_GRAPH, in.graph);
		struct graph_blocks blocks = o->graph.blocks;
		bool decides = from && from->graph.decides;

		o->graph.blocks = (struct graph_blocks){ NULL, 0, NULL };
		shim_hosts_drop(o);
		o->graph.blocks = blocks;
		r = share(SHIM_GRAPH, in.graph, o);
		o->graph.decides = decides;
	}
	resultInfo->result = out.result;
	resultInfo->errorNode = out.node ? shim_node_handle(in.graph, out.node - 1) : NULL;
	return r;
}

SHIM_API CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
				    CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r;

	if (!hErrorNode_out || !updateResult_out)
		return CUDA_ERROR_INVALID_VALUE;
	r = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
	*hErrorNode_out = info.errorNode;
	*updateResult_out = info.result;
	return r;
}

/* What it needs of this process is kept until it is done, whatever becomes of the graph. */
static CUresult launch_with_hosts(const struct vg_graph_launch_request *in, CUstream hStream, const struct shim_object *exec)
{
	CUresult r;
	void *held;

	if (shim_capturing(in->context, in->stream, &r)) {
		r = shim_hosts_captured(exec);
		return r == CUDA_SUCCESS ? vg_send_graph_launch(in) : r;
	}
	if (r == CUDA_SUCCESS && !shim_serve_gates(shim_channel_of(in->context)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	held = r == CUDA_SUCCESS ? shim_hosts_launch(exec, &r) : NULL;
	if (r == CUDA_SUCCESS)
		r = vg_send_graph_launch(in);
	if (r == CUDA_SUCCESS)
		r = cuLaunchHostFunc(hStream, shim_hosts_launched, held);
	if (r != CUDA_SUCCESS)
		shim_hosts_launched(held);
	return r;
}

/* In a stream that captures it would be a child graph, which has no memory and decides nothing. */
static CUresult check_capture(const struct vg_graph_launch_request *in, const struct shim_object *exec)
{
	CUresult r;

	if (shim_capturing(in->context, in->stream, &r))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	return graph_blocks_may_launch(&exec->graph.blocks, exec->graph.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
}

static CUresult launch(const struct vg_graph_launch_request *in, CUstream hStream)
{
	struct shim_object *exec = shim_object_get(SHIM_GRAPH_EXEC, in->exec);
	CUresult r;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	r = exec->graph.blocks.count || exec->graph.decides ? check_capture(in, exec) : CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	r = exec->graph.hosts ? launch_with_hosts(in, hStream, exec) : vg_send_graph_launch(in);
	if (r == CUDA_SUCCESS && exec->graph.blocks.count)
		graph_blocks_launched(&exec->graph.blocks);
	if (r == CUDA_SUCCESS && exec->graph.objects.count)
		shim_user_objects_launched(exec, in, hStream);
	return r;
}

SHIM_API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	struct vg_graph_launch_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_graph_exec(hGraphExec, &in.exec);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = shim_managed_launch();
	return r == CUDA_SUCCESS ? launch(&in, hStream) : r;
}

SHIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return cuGraphLaunch(hGraphExec, hStream ? hStream : CU_STREAM_PER_THREAD);
}

/* The worker's driver uploads when it is launched first. */
SHIM_API CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
	uint64_t context, stream, exec;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_graph_exec(hGraphExec, &exec);
	return r == CUDA_SUCCESS ? shim_stream(hStream, &context, &stream) : r;
}

SHIM_API CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return cuGraphUpload(hGraphExec, hStream ? hStream : CU_STREAM_PER_THREAD);
}

static CUresult enable(CUgraphExec hGraphExec, CUgraphNode hNode, uint32_t how, unsigned int *enabled)
{
	struct vg_graph_enable_request in = { .enable = how };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_enable_reply out;
	struct shim_node node;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_graph_exec(hGraphExec, &in.exec);
	if (r == CUDA_SUCCESS)
		r = shim_node(hNode, &node);
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = node.graph;
	in.node = node.number;
	r = vg_send_graph_enable(&in, &out);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("enabling a copy with host memory", &told);
	if (r == CUDA_SUCCESS)
		*enabled = out.enabled;
	return r;
}

SHIM_API CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	return enable(hGraphExec, hNode, !!isEnabled, &isEnabled);
}

SHIM_API CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
	return isEnabled ? enable(hGraphExec, hNode, 2, isEnabled) : CUDA_ERROR_INVALID_VALUE;
}
