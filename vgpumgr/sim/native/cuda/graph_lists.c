/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a graph: lists whose length a program asks for first. */
#include "graph.h"

struct list {
	CUgraphNode *a, *b;
	CUgraphEdgeData *data;
	size_t room, n;
	bool counts; /* there is no room: only how many */
};

static struct list list_of(CUgraphNode *a, CUgraphNode *b, CUgraphEdgeData *data, const size_t *n)
{
	return (struct list){ a, b, data, n ? *n : 0, 0, !a && !b };
}

static void list_put(struct list *l, const struct graph_node *a, const struct graph_node *b)
{
	if (!l->counts && l->n < l->room) {
		if (l->a)
			l->a[l->n] = (CUgraphNode)a;
		if (l->b)
			l->b[l->n] = (CUgraphNode)b;
		if (l->data)
			l->data[l->n] = (CUgraphEdgeData){ 0 };
	}
	l->n++;
}

/* What a program has more room for than there is is set to NULL, as documented. */
static CUresult list_end(struct list *l, size_t *n)
{
	if (l->counts) {
		*n = l->n;
		return CUDA_SUCCESS;
	}
	for (size_t i = l->n; i < l->room; i++) {
		if (l->a)
			l->a[i] = NULL;
		if (l->b)
			l->b[i] = NULL;
	}
	*n = l->n < l->room ? l->n : l->room;
	return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *n, bool roots)
{
	struct list l = list_of(nodes, NULL, NULL, n);
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = n ? graph_get(handle, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (struct graph_node *node = g->nodes; node; node = node->next) {
		if (!roots || !node->n_deps)
			list_put(&l, node, NULL);
	}
	return list_end(&l, n);
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *n)
{
	return list_nodes(handle, nodes, n, false);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *n)
{
	return list_nodes(handle, nodes, n, true);
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n)
{
	struct list l = list_of(from, to, data, n);
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = n && !from == !to ? graph_get(handle, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (struct graph_node *node = g->nodes; node; node = node->next) {
		for (size_t i = 0; i < node->n_deps; i++)
			list_put(&l, node->deps[i], node);
	}
	return list_end(&l, n);
}

CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
	return cuGraphGetEdges_v2(handle, from, to, NULL, n);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *n)
{
	struct list l = list_of(nodes, NULL, data, n);
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = n ? node_get(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; i < node->n_deps; i++)
		list_put(&l, node->deps[i], NULL);
	return list_end(&l, n);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *nodes, size_t *n)
{
	return cuGraphNodeGetDependencies_v2(handle, nodes, NULL, n);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *n)
{
	struct list l = list_of(nodes, NULL, data, n);
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = n ? node_get(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (struct graph_node *other = node->graph->nodes; other; other = other->next) {
		if (node_depends_on(other, node))
			list_put(&l, other, NULL);
	}
	return list_end(&l, n);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *nodes, size_t *n)
{
	return cuGraphNodeGetDependentNodes_v2(handle, nodes, NULL, n);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = type ? node_get(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*type = node->type;
	return r;
}
