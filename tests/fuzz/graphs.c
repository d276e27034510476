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
 */
#include <time.h>

#include "graphs.h"

enum { EDGES = 500 };

static CUhostFn reached;
static void *reached_data;
static pthread_t stream;

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
	struct vg_graph_child_graph_request inner = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 3) };
	struct vg_graph_child_reply out;

	capture_into(c, in.graph, 1);
	in.child = in.graph;
	must("no graph is its own child", wk_do_graph_child(c, &in, &out) == CUDA_ERROR_INVALID_VALUE);
	in.graph = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 1);
	inner.graph = in.graph;
	must("another", !wk_reserve(c, WK_GRAPH, in.graph) && !wk_reserve(c, WK_GRAPH, inner.created) &&
				wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = in.graph }) == CUDA_SUCCESS);
	in.child = vg_handle_make(VG_TAG_GRAPH, 1, graphs + 2);
	must("a child", !wk_reserve(c, WK_GRAPH, in.child) &&
				wk_do_graph_create(c, &(struct vg_graph_create_request){ .created = in.child }) == CUDA_SUCCESS &&
				wk_do_graph_child(c, &in, &out) == CUDA_SUCCESS && wk_do_graph_child_graph(c, &inner) == CUDA_SUCCESS);
	must("none captures into what is a node's", wk_do_capture_into(c, &(struct vg_capture_into_request){
										.stream = open_stream(c, 2), .graph = inner.created }) ==
								    CUDA_ERROR_NOT_SUPPORTED);
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

static void try_many(struct wk_call *c)
{
	struct wk_graph graph = { .count = 0 };

	(void)c;
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

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "hosts", try_hosts },
		{ "edges", try_edges },
		{ "elsewhere", try_elsewhere },
		{ "given", try_given },
		{ "invalid", try_invalid },
		{ "over", try_over },
		{ "child", try_child },
		{ "many", try_many },
		{ "context", try_context },
		{ "later", try_later },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
