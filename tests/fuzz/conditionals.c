/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest could do with conditional nodes beyond what it is charged for: conditionals CASE, on the null driver.
 *   deciding  handles, and nodes with many bodies, without end
 *   body      a stream that captured into a body goes, and what it captured may not be in a graph
 *   stale     such a stream goes, and the graph around the body is used and ended
 *   lost      the graph around the body is a capture's, and goes with its stream
 *   gone      the same, and the stream that captured into the body ends its capture as one of its own
 *   inner     a handle that was made for a body is used elsewhere, and after the body
 *   late      an executable graph ends while the driver says that there is one
 *   deep      nodes inside of one another, without end
 */
#include "graphs.h"

static uint64_t add_condition(struct wk_call *c, uint64_t graph)
{
	struct vg_graph_condition_request in = { .graph = graph };
	struct vg_graph_condition_reply out;

	return wk_do_graph_condition(c, &in, &out) == CUDA_SUCCESS ? out.condition : 0;
}

static CUresult add_conditional(struct wk_call *c, uint64_t graph, uint64_t condition, uint32_t bodies)
{
	struct vg_graph_conditional_request in = { .graph = graph, .condition = condition, .kind = CU_GRAPH_COND_TYPE_SWITCH,
						   .bodies = bodies };
	struct vg_graph_conditional_reply out;

	return wk_do_graph_conditional(c, &in, &out);
}

/* Nodes and handles until no more may be made: how many were. */
static uint64_t fill_graph(struct wk_call *c, uint64_t graph)
{
	uint64_t condition = add_condition(c, graph), made = 1;

	must("a handle", condition);
	while (made <= 2 * WK_NODES && add_conditional(c, graph, condition, WK_BODIES) == CUDA_SUCCESS)
		made += 1 + WK_BODIES;
	must("bodies without end", made <= WK_NODES);
	while (made <= 2 * WK_NODES && add_condition(c, graph))
		made++;
	must("handles without end", made == WK_NODES);
	return condition;
}

static CUresult refuse_handle(CUgraphConditionalHandle *made, CUgraph graph, CUcontext context, unsigned int initial,
			      unsigned int flags)
{
	(void)made, (void)graph, (void)context, (void)initial, (void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static void try_deciding(struct wk_call *c)
{
	CUresult (*create_handle)(CUgraphConditionalHandle *, CUgraph, CUcontext, unsigned int, unsigned int);
	struct vg_graph_condition_reply out;
	struct vg_graph_conditional_reply made;
	uint64_t graph = make_graph(c), other = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 1), condition = fill_graph(c, graph);

	must("it goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
	wk_frees_wait();
	graph = vg_handle_make(VG_TAG_GRAPH, 2, graphs);
	must("others", !wk_reserve(c, WK_GRAPH, graph) && !wk_reserve(c, WK_GRAPH, other) &&
			       wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = graph }) == CUDA_SUCCESS &&
			       wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = other }) == CUDA_SUCCESS);
	must("a handle goes with its graph", add_conditional(c, graph, condition, 1) == CUDA_ERROR_INVALID_VALUE);
	create_handle = wk_driver.cuGraphConditionalHandleCreate;
	wk_driver.cuGraphConditionalHandleCreate = refuse_handle;
	must("a driver that refuses", !add_condition(c, graph)); /* is not charged for */
	wk_driver.cuGraphConditionalHandleCreate = create_handle;
	must("flags", wk_do_graph_condition(c, &(struct vg_graph_condition_request){ .graph = graph, .flags = 2 }, &out) ==
			      CUDA_ERROR_INVALID_VALUE);
	condition = add_condition(c, graph);
	must("kinds", wk_do_graph_conditional(c, &(struct vg_graph_conditional_request){ .graph = graph, .condition = condition,
											  .kind = 3, .bodies = 1 }, &made) ==
			      CUDA_ERROR_INVALID_VALUE);
	must("handles are their graph's", condition && add_conditional(c, other, condition, 1) == CUDA_ERROR_INVALID_VALUE);
	must("no handle is made up", add_conditional(c, graph, condition + 1, 1) == CUDA_ERROR_INVALID_VALUE);
	must("bodies have an end", add_conditional(c, graph, condition, WK_BODIES + 1) == CUDA_ERROR_INVALID_VALUE);
	must("it goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
	wk_frees_wait();
	fill_graph(c, other); /* all was given back */
}

/* The null driver puts copies with the worker's memory into captures. */
static void try_body(struct wk_call *c)
{
	uint64_t graph = make_graph(c), condition = add_condition(c, graph), at;
	struct vg_graph_body_request body = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 1), .graph = graph };
	struct vg_graph_instantiate_request run = { .created = vg_handle_make(VG_TAG_GRAPH_EXEC, 1, 1), .graph = graph };
	struct wk_object *held WK_HELD = NULL;
	CUresult r = CUDA_SUCCESS;

	must("a node", condition && add_conditional(c, graph, condition, 2) == CUDA_SUCCESS);
	must("a body", !wk_reserve(c, WK_GRAPH, body.created) && wk_do_graph_body(c, &body) == CUDA_SUCCESS);
	must("it has one handle", wk_do_graph_body(c, &body) == CUDA_ERROR_INVALID_VALUE);
	must("it is the node's", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = body.created }) ==
					 CUDA_ERROR_INVALID_VALUE);
	at = capture_into(c, body.created, 1);
	must("its node stays", wk_do_graph_node_destroy(c, &(struct vg_graph_node_destroy_request){ .graph = graph }) ==
				       CUDA_ERROR_INVALID_VALUE);
	must("its graph stays", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) ==
					CUDA_ERROR_INVALID_VALUE);
	must("the graph", wk_hold(c, WK_GRAPH, graph, &held) == CUDA_SUCCESS);
	end_stream(c, at);
	must("what it got is held and charged", count_hosts(c, body.created) == 1 && held->graph->holds.count == 1 &&
							held->graph->weight >= 4);
	for (uint64_t turn = 2; r == CUDA_SUCCESS && turn < 6; turn++) {
		at = capture_into(c, body.created, turn);
		r = wk_do_capture_finish(c, &(struct vg_capture_finish_request){ .stream = at, .graph = body.created });
	}
	must("such a copy is noticed", r != CUDA_SUCCESS && held->graph->broken);
	must("the body is there", count_hosts(c, body.created) > 1);
	must("it takes no more", wk_do_capture_into(c, &(struct vg_capture_into_request){
							.stream = open_stream(c, 6), .graph = body.created }) == CUDA_ERROR_INVALID_VALUE);
	must("nothing is made of it", !wk_reserve(c, WK_GRAPH_EXEC, run.created) &&
					      wk_do_graph_instantiate(c, &run) == CUDA_ERROR_INVALID_VALUE);
	must("it goes with its node", wk_do_graph_node_destroy(c, &(struct vg_graph_node_destroy_request){ .graph = graph }) ==
					      CUDA_SUCCESS && !list_nodes(c, body.created) && !held->graph->conditionals);
}

/* The body of one more node that decides. */
static uint64_t make_body(struct wk_call *c, uint64_t graph, uint64_t slot, uint32_t node)
{
	struct vg_graph_body_request body = { .created = vg_handle_make(VG_TAG_GRAPH, 1, slot), .graph = graph, .node = node };
	uint64_t condition = add_condition(c, graph);

	must("a node", condition && add_conditional(c, graph, condition, 1) == CUDA_SUCCESS);
	must("its body", !wk_reserve(c, WK_GRAPH, body.created) && wk_do_graph_body(c, &body) == CUDA_SUCCESS);
	return body.created;
}

/* The stream that captures into a body goes; what it captured is the graph's, held, charged and checked, and the graph may go. */
static void try_stale(struct wk_call *c)
{
	uint64_t graph = make_graph(c), body = make_body(c, graph, graphs + 1, 0), at;
	struct vg_graph_instantiate_request run = { .created = vg_handle_make(VG_TAG_GRAPH_EXEC, 1, 1), .graph = graph };
	struct wk_object *held WK_HELD = NULL, *exec WK_HELD = NULL;
	struct vg_graph_node_destroy_request node = { .graph = graph };

	must("others capture", wk_do_capture_begin(c, &(struct vg_capture_begin_request){ .stream = open_stream(c, 1) }) == CUDA_SUCCESS &&
				       wk_capture_note(c, NULL, 1000) == CUDA_SUCCESS);
	at = capture_into(c, body, 2);
	must("a slot", !wk_reserve(c, WK_GRAPH_EXEC, run.created));
	must("nothing is made of it now", wk_do_graph_instantiate(c, &run) == CUDA_ERROR_INVALID_VALUE);
	end_stream(c, at);
	must("it is made", wk_do_graph_instantiate(c, &run) == CUDA_SUCCESS);
	must("the graph", wk_hold(c, WK_GRAPH, graph, &held) == CUDA_SUCCESS &&
				  wk_hold(c, WK_GRAPH_EXEC, run.created, &exec) == CUDA_SUCCESS);
	must("what it got is held", held->graph->holds.count == 1 && exec->graph->holds.count == 1);
	must("it pays for no other's", held->graph->weight >= 4 && held->graph->weight < 1000);
	end_stream(c, capture_into(c, body, 3));
	must("the node goes", wk_do_graph_node_destroy(c, &node) == CUDA_SUCCESS);
	end_stream(c, capture_into(c, make_body(c, graph, graphs + 2, ++node.node), 4));
	must("the graph goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS &&
				       !list_nodes(c, graph));
}

/* The driver ends a capture's graph with its stream `at`, and the bodies inside of it; the stream that captured into one is left. */
static uint64_t lose_body(struct wk_call *c, uint64_t graph, uint64_t *body)
{
	uint64_t at = open_stream(c, 1), inner;

	must("a capture", wk_do_capture_begin(c, &(struct vg_capture_begin_request){ .stream = at }) == CUDA_SUCCESS &&
				  !wk_reserve(c, WK_GRAPH, graph) &&
				  wk_do_capture_graph(c, &(struct vg_capture_graph_request){ .stream = at, .created = graph }) ==
					  CUDA_SUCCESS);
	*body = make_body(c, graph, graphs + 3, 0);
	must("a node inside", add_conditional(c, *body, add_condition(c, *body), 1) == CUDA_SUCCESS);
	inner = capture_into(c, *body, 2);
	end_stream(c, at);
	return inner;
}

static void try_lost(struct wk_call *c)
{
	uint64_t graph = vg_handle_make(VG_TAG_GRAPH, 1, graphs), body, inner = lose_body(c, graph, &body);
	struct vg_graph_body_request again = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 2), .graph = body };

	must("a body", !wk_reserve(c, WK_GRAPH, again.created) && wk_do_graph_body(c, &again) == CUDA_ERROR_INVALID_VALUE);
	must("it takes no node", add_host(c, body, 0, NUMBER) == CUDA_ERROR_INVALID_VALUE && !list_nodes(c, body));
	must("it takes no capture", wk_do_capture_into(c, &(struct vg_capture_into_request){
								.stream = open_stream(c, 3), .graph = body }) == CUDA_ERROR_INVALID_VALUE);
	must("nothing is kept", wk_do_capture_finish(c, &(struct vg_capture_finish_request){ .stream = inner, .graph = body }) !=
					CUDA_SUCCESS);
	capture_other(c, 4);
	must("it goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
}

/* Such a capture is ended as if its graph were its own: what has gone is no graph, before it is of no use and after. */
static void try_gone(struct wk_call *c)
{
	uint64_t graph = vg_handle_make(VG_TAG_GRAPH, 1, graphs), body, inner = lose_body(c, graph, &body);
	struct vg_capture_end_request end = { .stream = inner, .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 2) };

	must("a slot", !wk_reserve(c, WK_GRAPH, end.created));
	must("it is in no graph of its own", wk_do_capture_end(c, &end) == CUDA_ERROR_INVALID_VALUE && c->session->captures == 1);
	wk_driver.cuStreamQuery(raw_of(c, inner));
	must("nor when it is of no use", wk_do_capture_end(c, &end) == CUDA_ERROR_INVALID_VALUE && !list_nodes(c, end.created));
	must("it ends", wk_do_capture_finish(c, &(struct vg_capture_finish_request){ .stream = inner, .graph = body }) !=
				CUDA_SUCCESS && !c->session->captures);
	must("it has ended", wk_do_capture_end(c, &end) == CUDA_ERROR_ILLEGAL_STATE && !list_nodes(c, end.created));
}

/* A handle that was made for a body is that body's, and goes with it: the driver is never asked with another. */
static void try_inner(struct wk_call *c)
{
	uint64_t graph = make_graph(c), body = make_body(c, graph, graphs + 1, 0), other = make_body(c, graph, graphs + 2, 1);
	uint64_t inner = add_condition(c, body);
	struct wk_object *elsewhere = open_context(c->session, contexts + 1);
	struct wk_call in_other = begin(c->session, elsewhere);

	must("another context's stream", wk_do_capture_into(c, &(struct vg_capture_into_request){
								.stream = open_stream(&in_other, 1), .graph = body }) ==
						 CUDA_ERROR_NOT_SUPPORTED);
	wk_release(elsewhere);
	wk_set_current(c->context);
	must("a sibling's", inner && add_conditional(c, other, inner, 1) == CUDA_ERROR_INVALID_VALUE);
	must("one inside", add_conditional(c, graph, inner, 1) == CUDA_ERROR_INVALID_VALUE);
	must("the node goes", wk_do_graph_node_destroy(c, &(struct vg_graph_node_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
	must("of one that has gone", add_conditional(c, graph, inner, 1) == CUDA_ERROR_INVALID_VALUE);
}

static CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
static CUresult (*update)(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo *);
static int refusals;

static CUresult instantiate_late(CUgraphExec *made, CUgraph graph, unsigned long long flags)
{
	return refusals++ ? instantiate(made, graph, flags) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult update_late(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	return refusals++ ? update(exec, graph, info) : CUDA_ERROR_INVALID_VALUE;
}

/* No end is on its way any more when the driver has said so; a graph without such nodes is not asked for again. */
static void try_late(struct wk_call *c)
{
	uint64_t graph = make_graph(c), exec = vg_handle_make(VG_TAG_GRAPH_EXEC, 1, 1);
	struct vg_graph_instantiate_request in = { .created = exec, .graph = graph };
	struct vg_graph_exec_update_request again = { .exec = exec, .graph = graph };
	struct vg_graph_exec_update_reply out;

	instantiate = wk_driver.cuGraphInstantiateWithFlags, update = wk_driver.cuGraphExecUpdate_v2;
	wk_driver.cuGraphInstantiateWithFlags = instantiate_late, wk_driver.cuGraphExecUpdate_v2 = update_late;
	must("a slot", !wk_reserve(c, WK_GRAPH_EXEC, exec));
	must("a plain graph", wk_do_graph_instantiate(c, &in) == CUDA_ERROR_INVALID_VALUE && refusals == 1);
	refusals = 0;
	make_body(c, graph, graphs + 1, 0);
	must("it is made", wk_do_graph_instantiate(c, &in) == CUDA_SUCCESS && refusals == 2);
	refusals = 0;
	must("it is updated", wk_do_graph_exec_update(c, &again, &out) == CUDA_SUCCESS && refusals == 2);
}

static void try_deep(struct wk_call *c)
{
	uint64_t graph = make_graph(c);

	for (uint64_t depth = 1; depth <= WK_DEPTH; depth++)
		graph = make_body(c, graph, graphs + depth, 0);
	must("bodies have a depth", add_conditional(c, graph, add_condition(c, graph), 1) == CUDA_ERROR_NOT_SUPPORTED);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "deciding", try_deciding },
		{ "body", try_body },
		{ "stale", try_stale },
		{ "lost", try_lost },
		{ "gone", try_gone },
		{ "late", try_late },
		{ "inner", try_inner },
		{ "deep", try_deep },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
