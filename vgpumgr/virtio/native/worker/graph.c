/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs put into their tables, and numbers for the nodes that they have. */
#include <stdlib.h>
#include <string.h>

#include "session.h"

CUresult wk_graph_put(struct wk_call *c, enum wk_kind kind, uint64_t handle, void *driver, struct wk_graph *graph)
{
	struct wk_object lost = { .kind = kind, .owner = c->context, .context = c->context, .driver = driver,
				  .graph = graph };
	struct wk_object *o = graph ? wk_object_new(kind, c->context, driver, 0) : NULL;

	if (!o) {
		wk_destroy(&lost);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->graph = graph;
	return wk_put(c, handle, o);
}

CUresult wk_node_of(const struct wk_object *graph, uint32_t number, CUgraphNode *node)
{
	*node = number < graph->graph->count ? graph->graph->nodes[number] : NULL;
	return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult wk_graph_number(struct wk_graph *graph, CUgraph driver)
{
	size_t count = 0;
	CUresult r = wk_driver.cuGraphGetNodes(driver, NULL, &count);

	if (r != CUDA_SUCCESS || !count)
		return r;
	if (count > WK_NODES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->nodes = calloc(count, sizeof(CUgraphNode));
	if (!graph->nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->count = graph->room = count;
	return wk_driver.cuGraphGetNodes(driver, graph->nodes, &count);
}

CUresult wk_read_nodes(const struct wk_object *graph, const struct vg_bytes *in, CUgraphNode *nodes, size_t most,
			   size_t *count)
{
	CUresult r = in->length % 4 || in->length / 4 > most ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	uint32_t number;

	for (*count = 0; r == CUDA_SUCCESS && *count < in->length / 4; (*count)++) {
		memcpy(&number, (const uint8_t *)in->data + 4 * *count, 4);
		r = wk_node_of(graph, number, &nodes[*count]);
	}
	return r;
}
