/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs and nodes are known by, attributes of kernels in graphs, and child graphs that are changed where they run. */
#include <pthread.h>
#include <string.h>

#include "graph_children.h"
#include "graph_reads.h"
#include "hosts.h"

static CUresult number_of(enum shim_table table, uint64_t id, unsigned int *out)
{
	const struct shim_object *o = shim_object_get(table, id);

	if (!out || !o)
		return CUDA_ERROR_INVALID_VALUE;
	*out = o->graph.number;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuGraphGetId(CUgraph hGraph, unsigned int *graphId)
{
	return number_of(SHIM_GRAPH, (uint64_t)hGraph, graphId);
}

SHIM_API CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int *graphId)
{
	return number_of(SHIM_GRAPH_EXEC, (uint64_t)hGraphExec, graphId);
}

/* A node may have been destroyed; only the worker knows. */
static CUresult check_node(CUgraphNode hNode, const void *out, struct shim_node *node)
{
	uint32_t type;
	CUresult r = out ? shim_node(hNode, node) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? shim_node_type(node, &type) : r;
}

SHIM_API CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int *nodeId)
{
	struct shim_node node;
	CUresult r = check_node(hNode, nodeId, &node);

	if (r == CUDA_SUCCESS)
		*nodeId = node.number;
	return r;
}

SHIM_API CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long *toolsNodeId)
{
	struct shim_node node;
	unsigned int graph;
	CUresult r = check_node(hNode, toolsNodeId, &node);

	if (r == CUDA_SUCCESS)
		r = number_of(SHIM_GRAPH, node.graph, &graph);
	if (r == CUDA_SUCCESS)
		*toolsNodeId = (unsigned long long)graph << 32 | node.number;
	return r;
}

SHIM_API CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	struct shim_node node;
	CUresult r = check_node(hNode, phGraph, &node);

	if (r == CUDA_SUCCESS)
		*phGraph = (CUgraph)node.graph;
	return r;
}

/* ---- attributes */

static CUresult send_attribute(CUgraphNode hNode, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *set,
			       CUkernelNodeAttrValue *got)
{
	struct vg_graph_kernel_attribute_request in = { .attribute = (uint32_t)id, .set = set != NULL };
	struct vg_graph_kernel_attribute_reply out;
	struct shim_node node;
	CUresult r = cuda_check_kernel_attribute(id, set);

	if (r == CUDA_SUCCESS)
		r = shim_node(hNode, &node);
	if (r == CUDA_SUCCESS)
		r = shim_enter(&in.context);
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = node.graph;
	in.node = node.number;
	in.value = (struct vg_bytes){ set, set ? sizeof(*set) : 0 };
	r = vg_send_graph_kernel_attribute(&in, &out);
	if (r == CUDA_SUCCESS && got)
		memcpy(got, out.value, sizeof(*got));
	return r;
}

SHIM_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	CUresult r = value_out ? send_attribute(hNode, attr, NULL, value_out) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_ERROR_NOT_SUPPORTED ? shim_unsupported("such an attribute of a kernel's node", &told) : (int)r;
}

SHIM_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	CUresult r = value ? send_attribute(hNode, attr, value, NULL) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_ERROR_NOT_SUPPORTED ? shim_unsupported("such an attribute of a kernel's node", &told) : (int)r;
}

SHIM_API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct vg_graph_kernel_attributes_request in = { .graph = 0 };
	struct shim_node to, from;
	CUresult r = shim_node(dst, &to);

	if (r == CUDA_SUCCESS)
		r = shim_node(src, &from);
	if (r == CUDA_SUCCESS)
		r = shim_enter(&in.context);
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = to.graph, in.node = to.number;
	in.from_graph = from.graph, in.from_node = from.number;
	return vg_send_graph_kernel_attributes(&in);
}

/* ---- child graphs */

static CUresult make_child(const struct shim_node *node, struct shim_object *graph, uint64_t *made)
{
	struct vg_graph_child_graph_request in = { .graph = node->graph, .node = node->number };
	struct shim_object *o = NULL;
	CUresult r = shim_enter(&in.context);

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_new(SHIM_GRAPH, graph->context, &in.created);
	r = o && shim_child_add(graph, node->number, 0, in.created) ? vg_send_graph_child_graph(&in) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		shim_child_take(graph, node->number);
		if (o)
			shim_object_recycle(SHIM_GRAPH, in.created);
		return r;
	}
	shim_hosts_begin(o);
	o->graph.parent = node->graph;
	shim_object_publish(o, in.created);
	*made = in.created;
	return CUDA_SUCCESS;
}

/* The worker numbers a child graph's nodes once. */
static CUresult find_or_make_child(const struct shim_node *node, uint64_t *child)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct shim_object *graph;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	graph = shim_object_get(SHIM_GRAPH, node->graph);
	*child = graph ? shim_child_find(graph, node->number, 0) : 0;
	if (graph)
		r = *child ? CUDA_SUCCESS : make_child(node, graph, child);
	pthread_mutex_unlock(&lock);
	return r;
}

SHIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	struct shim_node node;
	uint64_t child;
	CUresult r = phGraph ? shim_node(hNode, &node) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = find_or_make_child(&node, &child);
	if (r == CUDA_SUCCESS)
		*phGraph = (CUgraph)child;
	return r;
}

SHIM_API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	struct vg_graph_exec_child_request in = { .graph = 0 };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct shim_object *exec, *child;
	struct shim_node node;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_graph_exec(hGraphExec, &in.exec);
	if (r == CUDA_SUCCESS)
		r = shim_node(hNode, &node);
	if (r == CUDA_SUCCESS)
		r = shim_graph(childGraph, &in.child);
	if (r == CUDA_SUCCESS && shim_graph_has_memory(in.child))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = node.graph;
	in.node = node.number;
	r = vg_send_graph_exec_child(&in);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("a child graph with host memory twice in one graph", &told);
	exec = shim_object_get(SHIM_GRAPH_EXEC, in.exec);
	child = shim_graph_all(in.child);
	return r == CUDA_SUCCESS && exec && child ? shim_hosts_share(child, exec) : r;
}
