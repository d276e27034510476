/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: graphs and executable graphs. Nodes come as numbers and leave as such. */
#include <stdlib.h>

#include "session.h"
#include "vg_worker.h"

CUresult wk_do_graph_create(struct wk_call *c, const struct vg_graph_create_request *in)
{
	CUgraph driver;
	CUresult r = wk_driver.cuGraphCreate(&driver, 0);

	return r == CUDA_SUCCESS ? wk_graph_put(c, WK_GRAPH, in->created, driver, wk_graph_new(0, NULL)) : r;
}

CUresult wk_do_graph_destroy(struct wk_call *c, const struct vg_graph_destroy_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUresult r = wk_graph_use(c, in->graph, &use);

	if (!use.graph)
		return r;
	if (use.graph->owner->kind == WK_GRAPH || use.stream || (r == CUDA_SUCCESS && wk_captured_inside(c, &use, WK_EVERY_NODE)))
		return CUDA_ERROR_INVALID_VALUE; /* another graph's, or a capture's */
	if (use.locked)
		wk_numbers_drop(c->session, use.graph->graph->capture);
	wk_graph_unuse(&use); /* who holds it ends it */
	wk_remove_later(c, WK_GRAPH, in->graph); /* one that could not be kept when its capture ended has gone already */
	return CUDA_SUCCESS;
}

/* Nodes keep their numbers. */
static CUresult number_clone(const struct wk_graph *from, CUgraph driver, struct wk_graph *to)
{
	CUresult r = CUDA_SUCCESS;

	to->nodes = calloc(from->count + 1, sizeof(CUgraphNode));
	if (!to->nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->count = to->room = from->count;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < from->count; i++) {
		if (from->nodes[i])
			r = wk_driver.cuGraphNodeFindInClone(&to->nodes[i], from->nodes[i], driver);
	}
	return r;
}

CUresult wk_do_graph_clone(struct wk_call *c, const struct vg_graph_clone_request *in)
{
	struct wk_object *from WK_HELD = NULL;
	struct wk_graph *graph;
	CUgraph driver;
	CUresult r = wk_graph_hold(c, in->graph, &from);

	if (r != CUDA_SUCCESS)
		return r;
	graph = wk_graph_new(wk_graph_all(from)->weight, &wk_graph_all(from)->holds);
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphClone(&driver, from->driver);
	if (r != CUDA_SUCCESS) {
		wk_graph_free(graph);
		return r;
	}
	r = number_clone(from->graph, driver, graph);
	if (r == CUDA_SUCCESS)
		return wk_graph_put(c, WK_GRAPH, in->created, driver, graph);
	wk_driver.cuGraphDestroy(driver);
	wk_graph_free(graph);
	return r;
}

/* Charged as long as the graph is there: what is removed may be one of a capture, which was not charged. */
static CUresult add_edges(struct wk_object *graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	CUresult r;

	if (!wk_nodes_charge(count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphAddDependencies(graph->driver, from, to, count);
	if (r == CUDA_SUCCESS)
		wk_graph_all(graph)->weight += count;
	else
		wk_nodes_refund(count);
	return r;
}

CUresult wk_do_graph_edges(struct wk_call *c, const struct vg_graph_edges_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	struct wk_object *graph;
	CUgraphNode nodes[2048], from[1024], to[1024];
	size_t count = 0;
	CUresult r = wk_graph_use(c, in->graph, &use);

	graph = use.graph;
	if (r == CUDA_SUCCESS)
		r = wk_read_nodes(graph, &in->edges, nodes, sizeof(nodes) / sizeof(nodes[0]), &count);
	if (r == CUDA_SUCCESS && (count % 2 || in->remove > 1))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; i < count / 2; i++) {
		from[i] = nodes[2 * i];
		to[i] = nodes[2 * i + 1];
	}
	return in->remove ? wk_driver.cuGraphRemoveDependencies(graph->driver, from, to, count / 2) :
			    add_edges(graph, from, to, count / 2);
}

CUresult wk_do_graph_node_type(struct wk_call *c, const struct vg_graph_node_type_request *in,
			       struct vg_graph_node_type_reply *out)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUgraphNodeType type = 0;
	CUgraphNode node;
	CUresult r = wk_graph_use(c, in->graph, &use);

	if (r == CUDA_SUCCESS)
		r = wk_node_of(use.graph, in->node, &node);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphNodeGetType(node, &type);
	if (r == CUDA_SUCCESS && wk_is_pair(node))
		type = CU_GRAPH_NODE_TYPE_MEMCPY;
	out->type = type;
	return r;
}

CUresult wk_do_graph_node_destroy(struct wk_call *c, const struct vg_graph_node_destroy_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	struct wk_object *graph;
	CUgraphNode node;
	CUresult r = wk_graph_use(c, in->graph, &use);

	graph = use.graph;
	if (r == CUDA_SUCCESS)
		r = wk_node_of(graph, in->node, &node);
	if (r == CUDA_SUCCESS && use.stream)
		r = CUDA_ERROR_INVALID_VALUE; /* none leaves a graph that is captured into */
	if (r == CUDA_SUCCESS && wk_captured_inside(c, &use, in->node))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphDestroyNode(node);
	if (r == CUDA_SUCCESS)
		wk_conditional_drop(graph->graph, node);
	if (r == CUDA_SUCCESS)
		graph->graph->nodes[in->node] = NULL; /* its number is not used again */
	if (r == CUDA_SUCCESS)
		wk_graph_drop_child(c, graph, in->node);
	return r;
}

/* ---- executable graphs */

CUresult wk_do_graph_instantiate(struct wk_call *c, const struct vg_graph_instantiate_request *in)
{
	struct wk_object *from WK_HELD = NULL;
	struct wk_graph *graph;
	CUgraphExec driver;
	CUresult r = wk_graph_hold(c, in->graph, &from);

	if (r != CUDA_SUCCESS)
		return r;
	graph = wk_graph_new(wk_graph_all(from)->weight, &wk_graph_all(from)->holds);
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphInstantiateWithFlags(&driver, from->driver, in->flags);
	/* of one with conditional nodes there is one at a time, and the last may have been on its way out */
	if (r != CUDA_SUCCESS && from->graph->conditionals) {
		wk_frees_wait();
		r = wk_driver.cuGraphInstantiateWithFlags(&driver, from->driver, in->flags);
	}
	if (r == CUDA_SUCCESS)
		return wk_graph_put(c, WK_GRAPH_EXEC, in->created, driver, graph);
	wk_graph_free(graph);
	return r;
}

CUresult wk_do_graph_exec_destroy(struct wk_call *c, const struct vg_graph_exec_destroy_request *in)
{
	return wk_remove_later(c, WK_GRAPH_EXEC, in->exec);
}

CUresult wk_do_graph_exec_update(struct wk_call *c, const struct vg_graph_exec_update_request *in,
				 struct vg_graph_exec_update_reply *out)
{
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	struct wk_object *exec WK_HELD = NULL, *graph WK_HELD = NULL;
	struct wk_holds wanted = { NULL, 0 };
	CUresult r = wk_hold(c, WK_GRAPH_EXEC, in->exec, &exec);

	if (r == CUDA_SUCCESS)
		r = wk_graph_hold(c, in->graph, &graph);
	if (r == CUDA_SUCCESS)
		r = wk_holds_add_all(&wanted, &wk_graph_all(graph)->holds);
	if (r == CUDA_SUCCESS && !wk_nodes_charge(wk_graph_all(graph)->weight))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	out->result = info.result;
	if (r != CUDA_SUCCESS) {
		wk_holds_drop(&wanted);
		return r;
	}
	r = wk_driver.cuGraphExecUpdate_v2(exec->driver, graph->driver, &info);
	/* as for an instantiation: the graph's last executable one may have been on its way out */
	if (r == CUDA_ERROR_INVALID_VALUE && graph->graph->conditionals) {
		wk_frees_wait();
		r = wk_driver.cuGraphExecUpdate_v2(exec->driver, graph->driver, &info);
	}
	wk_nodes_refund(r == CUDA_SUCCESS ? exec->graph->weight : wk_graph_all(graph)->weight);
	if (r == CUDA_SUCCESS) { /* it has nothing of what it had */
		struct wk_holds before = exec->graph->holds;

		exec->graph->weight = wk_graph_all(graph)->weight;
		exec->graph->holds = wanted;
		wanted = before;
	}
	wk_holds_drop(&wanted);
	out->result = info.result;
	for (uint32_t i = 0; info.errorNode && i < graph->graph->count; i++) {
		if (graph->graph->nodes[i] == info.errorNode)
			out->node = i + 1;
	}
	return r;
}

CUresult wk_do_graph_launch(struct wk_call *c, const struct vg_graph_launch_request *in)
{
	struct wk_object *exec WK_HELD = NULL, *stream WK_HELD = NULL;
	bool captures = false;
	CUresult r = wk_hold(c, WK_GRAPH_EXEC, in->exec, &exec);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_STREAM, in->stream, &stream);
	if (r == CUDA_SUCCESS)
		r = wk_capture_asks(c, stream, &captures);
	if (r == CUDA_SUCCESS && captures)
		r = wk_host_alone(&c->session->capture_holds, &exec->graph->holds);
	if (r == CUDA_SUCCESS)
		r = wk_capture_note_all(c, exec->graph);
	if (r != CUDA_SUCCESS)
		return r;
	return captures ? wk_driver.cuGraphLaunch(exec->driver, wk_raw(stream)) :
			  wk_host_launch(c, exec->graph, exec->driver, wk_raw(stream));
}

CUresult wk_do_graph_enable(struct wk_call *c, const struct vg_graph_enable_request *in, struct vg_graph_enable_reply *out)
{
	struct wk_object *exec WK_HELD = NULL, *graph WK_HELD = NULL;
	unsigned int enabled = in->enable;
	CUgraphNode node;
	CUresult r = wk_hold(c, WK_GRAPH_EXEC, in->exec, &exec);

	if (r == CUDA_SUCCESS)
		r = wk_graph_hold(c, in->graph, &graph);
	if (r == CUDA_SUCCESS)
		r = wk_node_of(graph, in->node, &node);
	if (r == CUDA_SUCCESS && wk_is_pair(node))
		r = CUDA_ERROR_NOT_SUPPORTED; /* the driver enables no child graphs */
	if (r != CUDA_SUCCESS)
		return r;
	r = in->enable > 1 ? wk_driver.cuGraphNodeGetEnabled(exec->driver, node, &enabled) :
			     wk_driver.cuGraphNodeSetEnabled(exec->driver, node, enabled);
	out->enabled = enabled;
	return r;
}
