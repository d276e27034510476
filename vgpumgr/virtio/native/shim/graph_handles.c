/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and nodes by their handles. */
#include "captures.h"
#include "graph_handles.h"

enum { NODE_TAG = 101, NUMBER_BITS = 20 };
_Static_assert(VG_CAP_GRAPH <= 1 << (32 - NUMBER_BITS), "a graph's slot and a node's number share 32 bits");

CUgraphNode shim_node_handle(uint64_t graph, uint32_t number)
{
	uint32_t both = vg_handle_slot(graph) << NUMBER_BITS | (number & ((1u << NUMBER_BITS) - 1));

	return (CUgraphNode)vg_handle_make(NODE_TAG, vg_handle_generation(graph), both);
}

CUresult shim_node(CUgraphNode handle, struct shim_node *node)
{
	uint64_t id = (uint64_t)handle;

	if (vg_handle_tag(id) != NODE_TAG)
		return CUDA_ERROR_INVALID_VALUE;
	node->graph = vg_handle_make(VG_TAG_GRAPH, vg_handle_generation(id), vg_handle_slot(id) >> NUMBER_BITS);
	node->number = vg_handle_slot(id) & ((1u << NUMBER_BITS) - 1);
	return shim_object_get(SHIM_GRAPH, node->graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult shim_graph(CUgraph handle, uint64_t *id)
{
	*id = (uint64_t)handle;
	return shim_object_get(SHIM_GRAPH, *id) ? CUDA_SUCCESS : shim_capture_no_graph(*id);
}

CUresult shim_graph_exec(CUgraphExec handle, uint64_t *id)
{
	*id = (uint64_t)handle;
	return shim_object_get(SHIM_GRAPH_EXEC, *id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct shim_object *shim_graph_all(uint64_t graph)
{
	struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);

	while (o && o->graph.parent)
		o = shim_object_get(SHIM_GRAPH, o->graph.parent);
	return o;
}

bool shim_graph_has_memory(uint64_t graph)
{
	const struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);

	return o && o->graph.blocks.count;
}

bool shim_graph_is_inside(uint64_t graph)
{
	const struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);

	while (o && !o->graph.body && o->graph.parent)
		o = shim_object_get(SHIM_GRAPH, o->graph.parent);
	return o && o->graph.body;
}
