/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: what is in a graph. Lists of the driver's nodes leave as numbers, a part at a time. */
#include <stdlib.h>
#include <string.h>

#include "vg_worker.h"

enum { NODES, ROOTS, EDGES, DEPENDENCIES, DEPENDENTS };
enum { NO_NODE = UINT32_MAX };

struct numbered {
	CUgraphNode node;
	uint32_t number;
};

static int by_node(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct numbered *)a)->node, y = (uintptr_t)((const struct numbered *)b)->node;

	return (x > y) - (x < y);
}

/* Two lists of the same length for edges, else one. */
static CUresult ask(const struct wk_object *graph, uint32_t what, CUgraphNode node, CUgraphNode *a, CUgraphNode *b,
		    size_t *count)
{
	switch (what) {
	case NODES:
		return wk_driver.cuGraphGetNodes(graph->driver, a, count);
	case ROOTS:
		return wk_driver.cuGraphGetRootNodes(graph->driver, a, count);
	case EDGES:
		return wk_driver.cuGraphGetEdges(graph->driver, a, b, count);
	case DEPENDENCIES:
		return wk_driver.cuGraphNodeGetDependencies(node, a, count);
	case DEPENDENTS:
		return wk_driver.cuGraphNodeGetDependentNodes(node, a, count);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static uint32_t number_of(const struct numbered *all, size_t count, CUgraphNode node)
{
	const struct numbered key = { node, 0 }, *found = bsearch(&key, all, count, sizeof(key), by_node);

	return found ? found->number : NO_NODE;
}

static CUresult translate(const struct wk_graph *g, const CUgraphNode *a, const CUgraphNode *b, size_t count,
			  uint32_t first, struct vg_graph_list_reply *out)
{
	struct numbered *all = calloc(g->count + 1, sizeof(*all));
	size_t most = sizeof(out->numbers) / 4, width = b ? 2 : 1, n = 0;

	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < g->count; i++)
		all[i] = (struct numbered){ g->nodes[i], i };
	qsort(all, g->count, sizeof(*all), by_node);
	for (size_t i = first; i < count && n + width <= most; i++) {
		uint32_t pair[] = { number_of(all, g->count, a[i]), b ? number_of(all, g->count, b[i]) : 0 };

		memcpy(out->numbers + 4 * n, pair, 4 * width);
		n += width;
	}
	out->numbers_length = 4 * n;
	free(all);
	return CUDA_SUCCESS;
}

CUresult wk_do_graph_list(struct wk_call *c, const struct vg_graph_list_request *in, struct vg_graph_list_reply *out)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUgraphNode node = NULL, *lists = NULL;
	struct wk_object *graph;
	size_t count = 0;
	CUresult r = wk_graph_use(c, in->graph, &use);

	graph = use.graph;
	if (r == CUDA_SUCCESS && use.stream)
		r = wk_numbers_rest(graph->graph, graph->driver);
	if (r == CUDA_SUCCESS && in->what >= DEPENDENCIES)
		r = wk_node_of(graph, in->node, &node);
	if (r == CUDA_SUCCESS)
		r = ask(graph, in->what, node, NULL, NULL, &count);
	if (r != CUDA_SUCCESS || !count)
		return r;
	lists = calloc(2 * count, sizeof(CUgraphNode));
	if (!lists)
		return CUDA_ERROR_OUT_OF_MEMORY;
	out->total = (uint32_t)count;
	r = ask(graph, in->what, node, lists, lists + count, &count);
	if (r == CUDA_SUCCESS)
		r = translate(graph->graph, lists, in->what == EDGES ? lists + out->total : NULL, count, in->first, out);
	free(lists);
	return r;
}
