/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: conditional nodes of graphs. Handles are the driver's, since kernels get them as they are; a node takes only one that
 * the guest was given for its graph. The bodies are the driver's as well, and known by their node.
 */
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "vg_worker.h"

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
	const struct wk_graph *all = wk_graph_all(graph);

	for (uint32_t i = 0; i < all->conditions_count; i++)
		if (all->conditions[i] == condition)
			return true;
	return false;
}

/* Under the session's lock. */
static bool captured_inside(const struct wk_object *graph, uint32_t place)
{
	for (const struct wk_object *o = graph->owned; o; o = o->next) {
		if (o->kind != WK_GRAPH || (place != WK_EVERY_NODE && o->graph->place != place))
			continue;
		if (atomic_load(&o->graph->stream) || captured_inside(o, WK_EVERY_NODE))
			return true;
	}
	return false;
}

bool wk_captured_inside(struct wk_session *s, const struct wk_object *graph, uint32_t place)
{
	bool found;

	pthread_mutex_lock(&s->lock);
	found = captured_inside(graph, place);
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Charged as a node, as long as the graph is there. */
CUresult wk_do_graph_condition(struct wk_call *c, const struct vg_graph_condition_request *in,
			       struct vg_graph_condition_reply *out)
{
	struct wk_use use WK_USED = { NULL, NULL, false };
	CUgraphConditionalHandle made = 0;
	struct wk_graph *all;
	uint64_t *more;
	CUresult r = in->flags & ~(uint32_t)CU_GRAPH_COND_ASSIGN_DEFAULT ? CUDA_ERROR_INVALID_VALUE :
									    wk_graph_use(c, in->graph, &use);

	if (r != CUDA_SUCCESS)
		return r;
	all = wk_graph_all(use.graph);
	more = reallocarray(all->conditions, all->conditions_count + 1u, sizeof(*more));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	all->conditions = more;
	if (!wk_nodes_charge(1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphConditionalHandleCreate(&made, use.graph->driver, c->context->driver, in->initial, in->flags);
	if (r != CUDA_SUCCESS) {
		wk_nodes_refund(1);
		return r;
	}
	all->weight++;
	all->conditions[all->conditions_count++] = made;
	out->condition = made;
	return CUDA_SUCCESS;
}
