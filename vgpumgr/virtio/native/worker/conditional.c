/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditional nodes of graphs. Handles are the driver's, since kernels get them as they are; a node takes only one that
 * the guest was given for its graph. The bodies are the driver's as well, and known by their node.
 */
#include <stdlib.h>
#include <string.h>

#include "session.h"

const struct wk_conditional *wk_conditional_of(const struct wk_graph *graph, CUgraphNode node)
{
	const struct wk_conditional *c = graph->conditionals;

	while (c && c->node != node)
		c = c->next;
	return c;
}

struct wk_conditional *wk_conditional_new(uint32_t bodies)
{
	return calloc(1, sizeof(struct wk_conditional) + bodies * sizeof(CUgraph));
}

void wk_conditional_keep(struct wk_graph *graph, struct wk_conditional *made, CUgraphNode node,
			 const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	made->node = node;
	made->context = params->ctx;
	made->condition = params->handle;
	made->kind = params->type;
	made->count = params->phGraph_out ? params->size : 0;
	if (made->count)
		memcpy(made->bodies, params->phGraph_out, made->count * sizeof(CUgraph));
	made->next = graph->conditionals;
	graph->conditionals = made;
}

void wk_conditional_drop(struct wk_graph *graph, CUgraphNode node)
{
	struct wk_conditional **at = &graph->conditionals, *c;

	while (*at && (*at)->node != node)
		at = &(*at)->next;
	c = *at;
	if (c)
		*at = c->next;
	free(c);
}

void wk_conditionals_free(struct wk_graph *graph)
{
	while (graph->conditionals)
		wk_conditional_drop(graph, graph->conditionals->node);
	free(graph->conditions);
}

bool wk_condition_is_known(const struct wk_object *graph, uint64_t condition)
{
	for (; graph->kind == WK_GRAPH; graph = graph->owner)
		for (uint32_t i = 0; i < graph->graph->conditions_count; i++)
			if (graph->graph->conditions[i] == condition)
				return true;
	return false;
}
