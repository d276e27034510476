/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest could do with graphs beyond what it is charged for: graphs CASE, on the null driver.
 *   hosts     one node gets another function of the guest's again and again
 *   edges     the same edges are added again and again
 *   elsewhere a graph is launched into a context that has not its events, and destroyed while the guest's function is awaited
 *   given     a stream that captured into a graph of the guest's goes, and what it captured is used
 *   invalid   such a capture is of no use any more, and is ended as if its graph were its own
 *   over      such a capture has ended, and its stream is still there
 *   child     a graph that is captured into is to be its own child
 *   many      nodes are numbered in no time, as many as there may be
 *   context   a context goes while one of its streams captures into a graph that has a handle
 *   later     a graph ends on the thread for ends that may wait
 *   deciding  conditional handles, and nodes with many bodies, without end
 *   body      a stream that captured into a body goes, and what it captured may not be in a graph
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lane.h"
#include "session.h"
#include "vg_worker.h"

enum { NUMBER = 7, EDGES = 500 };

static struct vg_lane lane;
static const uint64_t contexts = 1, graphs = 2;
static CUhostFn reached;
static void *reached_data;
static pthread_t stream;

static void must(const char *what, bool holds)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static struct wk_call begin(struct wk_session *s, struct wk_object *context)
{
	static const struct vg_call frame = { .sequence = 1 };

	return (struct wk_call){ .session = s, .lane = &lane, .call = &frame, .context = context };
}

static struct wk_object *open_context(struct wk_session *s, uint64_t number)
{
	struct vg_context_create_request in = { .created = vg_handle_make(VG_TAG_CONTEXT, 1, number) };
	struct vg_context_create_reply out;
	struct wk_call c = begin(s, NULL);
	struct wk_object *context;

	must("a context", !wk_reserve(&c, WK_CONTEXT, in.created) && wk_do_context_create(&c, &in, &out) == CUDA_SUCCESS &&
				  wk_hold(&c, WK_CONTEXT, in.created, &context) == CUDA_SUCCESS);
	wk_set_current(context);
	return context;
}

static uint64_t make_graph(struct wk_call *c)
{
	struct vg_graph_create_request in = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs) };

	must("a graph", !wk_reserve(c, WK_GRAPH, in.created) && wk_do_graph_create(c, &in) == CUDA_SUCCESS);
	return in.created;
}

static CUresult add_host(struct wk_call *c, uint64_t graph, uint32_t how, uint64_t number)
{
	struct vg_graph_host_request in = { .graph = graph, .how = how, .number = number };
	struct vg_graph_host_reply out;

	return wk_do_graph_host(c, &in, &out);
}

static void try_hosts(struct wk_call *c)
{
	uint64_t graph = make_graph(c), made = 1;

	must("a node", add_host(c, graph, 0, 0) == CUDA_SUCCESS);
	while (made <= 2 * WK_HOSTS && add_host(c, graph, 1, made) == CUDA_SUCCESS)
		made++;
	must("functions of the guest's without end", made == WK_HOSTS);
	must("none are left", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
	graph = vg_handle_make(VG_TAG_GRAPH, 2, graphs);
	must("a graph", !wk_reserve(c, WK_GRAPH, graph) &&
				wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = graph }) == CUDA_SUCCESS);
	must("they are given back", add_host(c, graph, 0, 0) == CUDA_SUCCESS);
}

static void try_edges(struct wk_call *c)
{
	struct vg_graph_edges_request in = { .graph = make_graph(c) };
	uint32_t pairs[EDGES][2];
	uint64_t made = 0;

	must("a node", add_host(c, in.graph, 0, 0) == CUDA_SUCCESS && add_host(c, in.graph, 0, 0) == CUDA_SUCCESS);
	for (int i = 0; i < EDGES; i++)
		pairs[i][0] = 0, pairs[i][1] = 1;
	in.edges = (struct vg_bytes){ (uint8_t *)pairs, sizeof(pairs) };
	while (made <= 2 * (uint64_t)WK_NODES && wk_do_graph_edges(c, &in) == CUDA_SUCCESS)
		made += EDGES;
	must("edges without end", made <= WK_NODES);
}

/* ---- a driver that refuses events of another context, as documented */

static CUresult refuse_event(CUevent event, CUstream at, unsigned int flags)
{
	(void)event, (void)at, (void)flags;
	return CUDA_ERROR_INVALID_HANDLE;
}

static void *run_stream(void *unused)
{
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL);
	reached(reached_data);
	return unused;
}

static CUresult launch_graph(CUgraphExec exec, CUstream at)
{
	(void)exec, (void)at;
	pthread_create(&stream, NULL, run_stream, NULL);
	return CUDA_SUCCESS;
}

static CUresult wait_stream(CUstream at)
{
	(void)at;
	pthread_join(stream, NULL);
	reached = NULL;
	return CUDA_SUCCESS;
}

/* Of the guest: its function is called once it has heard of it, and fills what it gets. */
static void *open_gate(void *session)
{
	struct vg_host_gate_open_request open = { .gate = NUMBER };
	struct wk_call c = begin(session, NULL);

	bool waits;

	for (int i = 0; i < 100; i++) {
		struct timespec pause = { .tv_nsec = 2000000 };
		struct vg_host_gate_next_reply out;

		nanosleep(&pause, NULL);
		pthread_mutex_lock(&c.session->lock);
		waits = c.session->reached;
		pthread_mutex_unlock(&c.session->lock);
		if (waits && wk_do_host_gate_next(&c, &out) == CUDA_SUCCESS)
			wk_do_host_gate_open(&c, &open);
	}
	return NULL;
}

static void try_elsewhere(struct wk_call *c)
{
	struct wk_object *elsewhere WK_HELD = open_context(c->session, contexts + 1);
	uint64_t exec = vg_handle_make(VG_TAG_GRAPH_EXEC, 1, 1), graph = make_graph(c);
	struct wk_call other = begin(c->session, elsewhere);
	CUDA_HOST_NODE_PARAMS params;
	struct wk_object *host, *held WK_HELD = NULL;
	pthread_t guest;

	must("a node", add_host(c, graph, 0, NUMBER) == CUDA_SUCCESS && wk_hold(c, WK_GRAPH, graph, &held) == CUDA_SUCCESS);
	host = held->graph->holds.at[0];
	params = wk_host_params(host);
	reached = params.fn, reached_data = params.userData;
	must("an executable graph", !wk_reserve(c, WK_GRAPH_EXEC, exec) &&
					    wk_do_graph_instantiate(c, &(struct vg_graph_instantiate_request){
									       .created = exec, .graph = graph }) == CUDA_SUCCESS);
	wk_driver.cuEventRecordWithFlags = refuse_event;
	wk_driver.cuGraphLaunch = launch_graph;
	wk_driver.cuStreamSynchronize = wait_stream;
	pthread_create(&guest, NULL, open_gate, c->session);
	wk_set_current(elsewhere);
	wk_do_graph_launch(&other, &(struct vg_graph_launch_request){ .exec = exec });
	wk_do_graph_exec_destroy(&other, &(struct vg_graph_exec_destroy_request){ .exec = exec });
	wk_release(held), held = NULL;
	wk_do_graph_destroy(&other, &(struct vg_graph_destroy_request){ .graph = graph });
	pthread_join(guest, NULL);
	if (reached) /* nobody has waited for the launch */
		pthread_join(stream, NULL);
	must("calls are read again", !wk_is_behind(c->session));
}

/* ---- captures into a graph of the guest's */

static CUgraph captured; /* what the stream captures into */

/* As a driver does: the host function becomes a node. */
static CUresult capture_host(CUstream at, CUhostFn function, void *data)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = function, .userData = data };
	CUgraphNode node;

	(void)at;
	return wk_driver.cuGraphAddHostNode(&node, captured, NULL, 0, &params);
}

static uint64_t open_stream(struct wk_call *c, uint64_t slot)
{
	uint64_t handle = vg_handle_make(VG_TAG_STREAM, 1, slot);
	CUstream driver;

	must("a stream", !wk_reserve(c, WK_STREAM, handle) && wk_charge(WK_STREAM, 0) == CUDA_SUCCESS &&
				 wk_driver.cuStreamCreateWithPriority(&driver, 0, 0) == CUDA_SUCCESS &&
				 wk_fill(c, WK_STREAM, handle, driver, 0) == CUDA_SUCCESS);
	return handle;
}

/* A function of the guest's is captured by a stream into a graph that is there. */
static uint64_t capture_into(struct wk_call *c, uint64_t graph, uint64_t slot)
{
	uint64_t at = open_stream(c, slot);
	struct wk_object *held WK_HELD = NULL;

	must("the graph", wk_hold(c, WK_GRAPH, graph, &held) == CUDA_SUCCESS);
	captured = held->driver;
	wk_driver.cuLaunchHostFunc = capture_host;
	must("a capture", wk_do_capture_into(c, &(struct vg_capture_into_request){ .stream = at, .graph = graph }) == CUDA_SUCCESS &&
				  wk_do_capture_host(c, &(struct vg_capture_host_request){ .stream = at, .number = NUMBER }) ==
					  CUDA_SUCCESS);
	return at;
}

/* How many of its nodes are the guest's function. */
static int count_hosts(struct wk_call *c, uint64_t graph)
{
	struct vg_graph_node_read_request in = { .graph = graph };
	struct vg_graph_node_read_reply out = { .number = 0 };
	int found = 0;

	for (; wk_do_graph_node_read(c, &in, &out) == CUDA_SUCCESS; in.node++)
		found += out.type == CU_GRAPH_NODE_TYPE_HOST && out.number == NUMBER;
	return found;
}

static uint64_t list_nodes(struct wk_call *c, uint64_t graph)
{
	struct vg_graph_list_request in = { .graph = graph };
	static struct vg_graph_list_reply out;

	return wk_do_graph_list(c, &in, &out) == CUDA_SUCCESS ? out.total : 0;
}

/* One capture that has nothing to do with it. */
static void capture_other(struct wk_call *c, uint64_t slot)
{
	uint64_t at = open_stream(c, slot), graph = vg_handle_make(VG_TAG_GRAPH, slot, graphs + 1);

	must("another capture", wk_do_capture_begin(c, &(struct vg_capture_begin_request){ .stream = at }) == CUDA_SUCCESS &&
					!wk_reserve(c, WK_GRAPH, graph));
	wk_do_capture_end(c, &(struct vg_capture_end_request){ .stream = at, .created = graph });
	wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph });
}

static void end_stream(struct wk_call *c, uint64_t at)
{
	must("the stream goes", wk_do_cuStreamDestroy_v2(c, &(struct vg_cuStreamDestroy_v2_request){ .hStream = at }) ==
					CUDA_SUCCESS);
}

static void try_given(struct wk_call *c)
{
	uint64_t graph = make_graph(c), exec = vg_handle_make(VG_TAG_GRAPH_EXEC, 1, 1);
	struct wk_object *held WK_HELD = NULL;

	/* the graph is used before others are captured, or only after */
	for (uint64_t turn = 1; turn <= 2; turn++) {
		uint64_t at = capture_into(c, graph, 2 * turn);

		must("it is in a graph that is captured into", turn == 2 || list_nodes(c, graph));
		end_stream(c, at);
		must("all have numbers", turn == 2 || count_hosts(c, graph) == 1);
		capture_other(c, 2 * turn + 1);
		must("none is lost", count_hosts(c, graph) == (int)turn);
	}
	must("it is held and charged", wk_hold(c, WK_GRAPH, graph, &held) == CUDA_SUCCESS && held->graph->holds.count == 2 &&
					       held->graph->weight >= held->graph->count);
	must("it is run", !wk_reserve(c, WK_GRAPH_EXEC, exec) &&
				  wk_do_graph_instantiate(c, &(struct vg_graph_instantiate_request){
								     .created = exec, .graph = graph }) == CUDA_SUCCESS);
}

/* The driver's own stream. */
static CUstream raw_of(struct wk_call *c, uint64_t at)
{
	struct wk_object *held WK_HELD = NULL;

	must("the stream", wk_hold(c, WK_STREAM, at, &held) == CUDA_SUCCESS);
	return held->driver;
}

static void try_invalid(struct wk_call *c)
{
	uint64_t graph = make_graph(c), at = capture_into(c, graph, 1), own = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 1);
	struct vg_capture_end_request in = { .stream = at, .created = own };

	must("a capture is of no use", wk_driver.cuStreamQuery(raw_of(c, at)) != CUDA_SUCCESS &&
					       !wk_reserve(c, WK_GRAPH, own));
	must("its graph is in a table", wk_do_capture_end(c, &in) == CUDA_ERROR_INVALID_VALUE);
	wk_do_capture_finish(c, &(struct vg_capture_finish_request){ .stream = at, .graph = graph });
	must("what it got stays", count_hosts(c, graph) == 1);
	must("it has ended", wk_do_capture_end(c, &in) == CUDA_ERROR_ILLEGAL_STATE && !c->session->captures);
}

static void try_over(struct wk_call *c)
{
	uint64_t graph = make_graph(c), at = capture_into(c, graph, 1);
	struct wk_object *held WK_HELD = NULL;
	CUgraph same;

	must("the capture ends", wk_driver.cuStreamEndCapture(raw_of(c, at), &same) == CUDA_SUCCESS);
	list_nodes(c, graph);
	must("the stream is its table's", wk_hold(c, WK_STREAM, at, &held) == CUDA_SUCCESS && atomic_load(&held->references) == 2);
}

static void try_child(struct wk_call *c)
{
	struct vg_graph_child_request in = { .graph = make_graph(c) };
	struct vg_graph_child_reply out;

	capture_into(c, in.graph, 1);
	in.child = in.graph;
	must("no graph is its own child", wk_do_graph_child(c, &in, &out) == CUDA_ERROR_INVALID_VALUE);
}

/* A list that the driver takes no time for. */
static CUresult list_many(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	(void)graph;
	*count = WK_NODES;
	for (size_t i = 0; nodes && i < *count; i++)
		nodes[i] = (CUgraphNode)(16 * (i + 1));
	return CUDA_SUCCESS;
}

static void try_many(void)
{
	struct wk_graph graph = { .count = 0 };

	wk_driver.cuGraphGetNodes = list_many;
	alarm(20);
	must("all have numbers", wk_numbers_rest(&graph, NULL) == CUDA_SUCCESS && graph.count == WK_NODES);
	free(graph.nodes);
}

static int ended;
static CUresult (*end_driver_context)(CUcontext);

static CUresult note_context(CUcontext context)
{
	ended++;
	return end_driver_context(context);
}

static void try_context(struct wk_call *c)
{
	struct wk_object *other = open_context(c->session, contexts + 1);
	struct wk_call in_other = begin(c->session, other);
	uint64_t at = open_stream(&in_other, 1), graph = vg_handle_make(VG_TAG_GRAPH, 1, graphs);

	must("a capture with a graph", wk_do_capture_begin(&in_other, &(struct vg_capture_begin_request){ .stream = at }) ==
						CUDA_SUCCESS && !wk_reserve(&in_other, WK_GRAPH, graph) &&
					       wk_do_capture_graph(&in_other, &(struct vg_capture_graph_request){
										      .stream = at, .created = graph }) == CUDA_SUCCESS);
	wk_release(other);
	end_driver_context = wk_driver.cuCtxDestroy_v2;
	wk_driver.cuCtxDestroy_v2 = note_context;
	must("the context goes", wk_do_context_destroy(c, &(struct vg_context_destroy_request){
							     .target = vg_handle_make(VG_TAG_CONTEXT, 1, contexts + 1) }) ==
					 CUDA_SUCCESS);
	must("nothing keeps it", ended == 1);
	capture_other(c, 2);
}

static pthread_t ender;
static CUresult (*end_graph)(CUgraph);

static CUresult note_end(CUgraph graph)
{
	ender = pthread_self();
	return end_graph(graph);
}

static void try_later(struct wk_call *c)
{
	uint64_t graph = make_graph(c);

	ender = pthread_self();
	end_graph = wk_driver.cuGraphDestroy;
	wk_driver.cuGraphDestroy = note_end;
	must("it goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
	wk_frees_wait();
	must("on another thread", !pthread_equal(ender, pthread_self()));
}

/* ---- conditional nodes */

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

static void try_deciding(struct wk_call *c)
{
	uint64_t graph = make_graph(c), other = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 1), condition, made = 1;

	condition = add_condition(c, graph);
	must("a handle", condition);
	must("another graph", !wk_reserve(c, WK_GRAPH, other) &&
				      wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = other }) == CUDA_SUCCESS);
	must("handles are their graph's", add_conditional(c, other, condition, 1) == CUDA_ERROR_INVALID_VALUE);
	must("no handle is made up", add_conditional(c, graph, condition + 1, 1) == CUDA_ERROR_INVALID_VALUE);
	must("bodies have an end", add_conditional(c, graph, condition, WK_BODIES + 1) == CUDA_ERROR_INVALID_VALUE);
	while (made <= 2 * WK_NODES && add_conditional(c, graph, condition, WK_BODIES) == CUDA_SUCCESS)
		made += WK_BODIES;
	must("bodies without end", made <= WK_NODES);
	while (made <= 2 * WK_NODES && add_condition(c, graph))
		made++;
	must("handles without end", made <= WK_NODES);
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
	must("nothing is made of it", !wk_reserve(c, WK_GRAPH_EXEC, run.created) &&
					      wk_do_graph_instantiate(c, &run) == CUDA_ERROR_INVALID_VALUE);
	must("it goes with its node", wk_do_graph_node_destroy(c, &(struct vg_graph_node_destroy_request){ .graph = graph }) ==
					      CUDA_SUCCESS && !list_nodes(c, body.created));
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

/* The driver ends a capture's graph with its stream, and the bodies inside of it. */
static void try_lost(struct wk_call *c)
{
	uint64_t graph = vg_handle_make(VG_TAG_GRAPH, 1, graphs), at = open_stream(c, 1), body, inner;
	struct vg_graph_body_request again = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 2) };

	must("a capture", wk_do_capture_begin(c, &(struct vg_capture_begin_request){ .stream = at }) == CUDA_SUCCESS &&
				  !wk_reserve(c, WK_GRAPH, graph) &&
				  wk_do_capture_graph(c, &(struct vg_capture_graph_request){ .stream = at, .created = graph }) ==
					  CUDA_SUCCESS);
	body = make_body(c, graph, graphs + 3, 0);
	must("a node inside", add_conditional(c, body, add_condition(c, body), 1) == CUDA_SUCCESS);
	inner = capture_into(c, body, 2);
	end_stream(c, at);
	again.graph = body;
	must("a body", !wk_reserve(c, WK_GRAPH, again.created) && wk_do_graph_body(c, &again) == CUDA_ERROR_INVALID_VALUE);
	must("it takes no node", add_host(c, body, 0, NUMBER) == CUDA_ERROR_INVALID_VALUE && !list_nodes(c, body));
	must("it takes no capture", wk_do_capture_into(c, &(struct vg_capture_into_request){
								.stream = open_stream(c, 3), .graph = body }) == CUDA_ERROR_INVALID_VALUE);
	must("nothing is kept", wk_do_capture_finish(c, &(struct vg_capture_finish_request){ .stream = inner, .graph = body }) !=
					CUDA_SUCCESS);
	capture_other(c, 4);
	must("it goes", wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph }) == CUDA_SUCCESS);
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
	struct wk_session *s = wk_session_create(&lane);
	struct wk_object *context;
	char message[512];
	struct wk_call c;

	pthread_mutex_init(&lane.lock, NULL);
	alarm(100);
	if (argc != 2 || wk_driver_load(NULL, message, sizeof(message)))
		return 2;
	context = open_context(s, contexts);
	c = begin(s, context);
	if (!strcmp(argv[1], "hosts"))
		try_hosts(&c);
	else if (!strcmp(argv[1], "edges"))
		try_edges(&c);
	else if (!strcmp(argv[1], "given"))
		try_given(&c);
	else if (!strcmp(argv[1], "invalid"))
		try_invalid(&c);
	else if (!strcmp(argv[1], "over"))
		try_over(&c);
	else if (!strcmp(argv[1], "child"))
		try_child(&c);
	else if (!strcmp(argv[1], "many"))
		try_many();
	else if (!strcmp(argv[1], "context"))
		try_context(&c);
	else if (!strcmp(argv[1], "later"))
		try_later(&c);
	else if (!strcmp(argv[1], "deciding"))
		try_deciding(&c);
	else if (!strcmp(argv[1], "body"))
		try_body(&c);
	else if (!strcmp(argv[1], "stale"))
		try_stale(&c);
	else if (!strcmp(argv[1], "lost"))
		try_lost(&c);
	else if (!strcmp(argv[1], "deep"))
		try_deep(&c);
	else if (!strcmp(argv[1], "elsewhere"))
		try_elsewhere(&c);
	else
		return 2;
	wk_release(context);
	wk_session_destroy(s);
	return 0;
}
