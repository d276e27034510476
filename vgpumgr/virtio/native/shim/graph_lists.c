/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of a graph's nodes and edges. A program asks how many there are, or gives room. */
#include <string.h>

#include "captures.h"
#include "graph.h"

enum { NODES, ROOTS, EDGES, DEPENDENCIES, DEPENDENTS }; /* of graph_list */

/* A part of a list, as it comes. */
struct part {
	uint32_t total;
	size_t length;
	uint8_t numbers[sizeof(((struct vg_graph_list_reply *)0)->numbers)];
};
_Static_assert(sizeof(((struct part *)0)->numbers) == sizeof(((struct vg_capture_list_reply *)0)->numbers), "one room for both");

static CUresult ask_graph(const struct shim_list *l, uint32_t first, struct part *part)
{
	struct vg_graph_list_request in = { .graph = l->graph, .what = l->what, .node = l->node, .first = first };
	struct vg_graph_list_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = vg_send_graph_list(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	part->total = out.total;
	part->length = out.numbers_length;
	memcpy(part->numbers, out.numbers, out.numbers_length);
	return CUDA_SUCCESS;
}

static CUresult ask_capture(const struct shim_list *l, uint32_t first, struct part *part)
{
	struct vg_capture_list_request in = { .context = l->context, .stream = l->stream, .what = l->what == DEPENDENCIES,
					      .node = l->node, .first = first };
	struct vg_capture_list_reply out;
	CUresult r = vg_send_capture_list(&in, &out);

	if (r != CUDA_SUCCESS)
		return r;
	part->total = out.total;
	part->length = out.numbers_length;
	memcpy(part->numbers, out.numbers, out.numbers_length);
	return CUDA_SUCCESS;
}

static void put(const struct shim_list *l, size_t at, CUgraphNode a, CUgraphNode b)
{
	if (l->a)
		l->a[at] = a;
	if (l->b)
		l->b[at] = b;
	if (l->data)
		l->data[at] = (CUgraphEdgeData){ 0 };
}

CUresult shim_list_read(const struct shim_list *l, size_t room, size_t *total)
{
	size_t width = l->what == EDGES ? 2 : 1, first = 0, got;
	uint32_t numbers[2] = { 0, 0 };
	struct part part = { 0 };
	CUresult r;

	do {
		r = l->stream ? ask_capture(l, (uint32_t)first, &part) : ask_graph(l, (uint32_t)first, &part);
		if (r != CUDA_SUCCESS)
			return r;
		got = part.length / (4 * width);
		for (size_t i = 0; (l->a || l->b) && i < got && first + i < room; i++) {
			memcpy(numbers, part.numbers + 4 * width * i, 4 * width);
			put(l, first + i, shim_node_handle(l->graph, numbers[0]), shim_node_handle(l->graph, numbers[1]));
		}
		first += got;
	} while ((l->a || l->b) && got && first < part.total && first < room);
	*total = part.total;
	return CUDA_SUCCESS;
}

static CUresult read_list(const struct shim_list *l, size_t *count)
{
	size_t room = *count, total;
	CUresult r = shim_list_read(l, room, &total);

	if (r != CUDA_SUCCESS)
		return r;
	*count = (!l->a && !l->b) || total < room ? total : room;
	for (size_t i = total; (l->a || l->b) && i < room; i++)
		put(l, i, NULL, NULL);
	return CUDA_SUCCESS;
}

static CUresult list_graph(CUgraph hGraph, uint32_t what, struct shim_list l, size_t *count)
{
	CUresult r = count ? shim_graph(hGraph, &l.graph) : CUDA_ERROR_INVALID_VALUE;

	l.what = what;
	return r == CUDA_SUCCESS ? read_list(&l, count) : r;
}

static CUresult list_node(CUgraphNode hNode, uint32_t what, struct shim_list l, size_t *count)
{
	struct shim_node node = { .graph = 0 };
	CUresult r = count ? shim_node(hNode, &node) : CUDA_ERROR_INVALID_VALUE;

	/* its graph may be in the making: there, what a node depends on does not change */
	if (r != CUDA_SUCCESS && what == DEPENDENCIES && shim_capture_of_graph(node.graph, &l.context, &l.stream))
		r = CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	l.what = what;
	l.graph = node.graph;
	l.node = node.number;
	return read_list(&l, count);
}

SHIM_API CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	return list_graph(hGraph, NODES, (struct shim_list){ .a = nodes }, numNodes);
}

SHIM_API CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	return list_graph(hGraph, ROOTS, (struct shim_list){ .a = rootNodes }, numRootNodes);
}

SHIM_API CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
				     size_t *numEdges)
{
	if (!from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	return list_graph(hGraph, EDGES, (struct shim_list){ .a = from, .b = to, .data = edgeData }, numEdges);
}

SHIM_API CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

SHIM_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
						size_t *numDependencies)
{
	return list_node(hNode, DEPENDENCIES, (struct shim_list){ .a = dependencies, .data = edgeData }, numDependencies);
}

SHIM_API CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

SHIM_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
						  CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
	return list_node(hNode, DEPENDENTS, (struct shim_list){ .a = dependentNodes, .data = edgeData }, numDependentNodes);
}

SHIM_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
	return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}
