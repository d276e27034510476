/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_place.h"

CUresult shim_place_add(struct shim_place *p, CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count)
{
	size_t first = count < SHIM_PLACE_AT_ONCE ? count : SHIM_PLACE_AT_ONCE;
	struct shim_node node;
	CUresult r = shim_enter(&p->context);

	p->how = SHIM_ADD;
	p->exec = 0;
	p->number = 0;
	if (r == CUDA_SUCCESS && (!out || (count && !dependencies)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_graph(hGraph, &p->graph);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = shim_node(dependencies[i], &node);
		if (r == CUDA_SUCCESS && node.graph != p->graph)
			r = CUDA_ERROR_INVALID_VALUE;
		if (i < first)
			p->dependencies[i] = node.number;
	}
	p->sent = (struct vg_bytes){ p->dependencies, 4 * first };
	p->more = count ? dependencies + first : NULL;
	p->count = count - first;
	return r;
}

CUresult shim_place_set(struct shim_place *p, uint32_t how, CUgraphExec exec, CUgraphNode hNode)
{
	struct shim_node node;
	CUresult r = shim_enter(&p->context);

	*p = (struct shim_place){ .context = p->context, .how = how };
	if (r == CUDA_SUCCESS && how == SHIM_SET_EXEC)
		r = shim_graph_exec(exec, &p->exec);
	if (r == CUDA_SUCCESS)
		r = shim_node(hNode, &node);
	if (r != CUDA_SUCCESS)
		return r;
	p->graph = node.graph;
	p->number = node.number;
	return CUDA_SUCCESS;
}

CUresult shim_place_finish(const struct shim_place *p, CUresult r, uint32_t number, CUgraphNode *out)
{
	CUgraphNode node = shim_node_handle(p->graph, number);

	if (r != CUDA_SUCCESS || p->how != SHIM_ADD)
		return r;
	for (size_t i = 0; r == CUDA_SUCCESS && i < p->count; i++)
		r = shim_edges(p->context, p->graph, &p->more[i], &node, 1, false);
	if (r == CUDA_SUCCESS)
		*out = node;
	else
		shim_node_undo(node);
	return r;
}
