/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of a guest that has one context and makes graphs, on the null driver. */
#ifndef VGPUMGR_FUZZ_GRAPHS_H
#define VGPUMGR_FUZZ_GRAPHS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lane.h"
#include "session.h"
#include "vg_worker.h"

enum { NUMBER = 7 };

static struct vg_lane lane;
static const uint64_t contexts = 1, graphs = 2; /* the first numbers of handles */

static inline void must(const char *what, bool holds)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static inline struct wk_call begin(struct wk_session *s, struct wk_object *context)
{
	static const struct vg_call frame = { .sequence = 1 };

	return (struct wk_call){ .session = s, .lane = &lane, .call = &frame, .context = context };
}

static inline struct wk_object *open_context(struct wk_session *s, uint64_t number)
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

static inline uint64_t make_graph(struct wk_call *c)
{
	struct vg_graph_create_request in = { .created = vg_handle_make(VG_TAG_GRAPH, 1, graphs) };

	must("a graph", !wk_reserve(c, WK_GRAPH, in.created) && wk_do_graph_create(c, &in) == CUDA_SUCCESS);
	return in.created;
}

static inline CUresult add_host(struct wk_call *c, uint64_t graph, uint32_t how, uint64_t number)
{
	struct vg_graph_host_request in = { .graph = graph, .how = how, .number = number };
	struct vg_graph_host_reply out;

	return wk_do_graph_host(c, &in, &out);
}

/* ---- captures into a graph of the guest's */

static CUgraph captured; /* what the stream captures into */

/* As a driver does: the host function becomes a node. */
static inline CUresult capture_host(CUstream at, CUhostFn function, void *data)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = function, .userData = data };
	CUgraphNode node;

	(void)at;
	return wk_driver.cuGraphAddHostNode(&node, captured, NULL, 0, &params);
}

static inline uint64_t open_stream(struct wk_call *c, uint64_t slot)
{
	uint64_t handle = vg_handle_make(VG_TAG_STREAM, 1, slot);
	CUstream driver;

	must("a stream", !wk_reserve(c, WK_STREAM, handle) && wk_charge(WK_STREAM, 0) == CUDA_SUCCESS &&
				 wk_driver.cuStreamCreateWithPriority(&driver, 0, 0) == CUDA_SUCCESS &&
				 wk_fill(c, WK_STREAM, handle, driver, 0) == CUDA_SUCCESS);
	return handle;
}

/* A function of the guest's is captured by a stream into a graph that is there. */
static inline uint64_t capture_into(struct wk_call *c, uint64_t graph, uint64_t slot)
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
static inline int count_hosts(struct wk_call *c, uint64_t graph)
{
	struct vg_graph_node_read_request in = { .graph = graph };
	struct vg_graph_node_read_reply out = { .number = 0 };
	int found = 0;

	for (; wk_do_graph_node_read(c, &in, &out) == CUDA_SUCCESS; in.node++)
		found += out.type == CU_GRAPH_NODE_TYPE_HOST && out.number == NUMBER;
	return found;
}

static inline uint64_t list_nodes(struct wk_call *c, uint64_t graph)
{
	struct vg_graph_list_request in = { .graph = graph };
	static struct vg_graph_list_reply out;

	return wk_do_graph_list(c, &in, &out) == CUDA_SUCCESS ? out.total : 0;
}

/* One capture that has nothing to do with it. */
static inline void capture_other(struct wk_call *c, uint64_t slot)
{
	uint64_t at = open_stream(c, slot), graph = vg_handle_make(VG_TAG_GRAPH, slot, graphs + 1);

	must("another capture", wk_do_capture_begin(c, &(struct vg_capture_begin_request){ .stream = at }) == CUDA_SUCCESS &&
					!wk_reserve(c, WK_GRAPH, graph));
	wk_do_capture_end(c, &(struct vg_capture_end_request){ .stream = at, .created = graph });
	wk_do_graph_destroy(c, &(struct vg_graph_destroy_request){ .graph = graph });
}

/* The driver's own stream. */
static inline CUstream raw_of(struct wk_call *c, uint64_t at)
{
	struct wk_object *held WK_HELD = NULL;

	must("the stream", wk_hold(c, WK_STREAM, at, &held) == CUDA_SUCCESS);
	return held->driver;
}

static inline void end_stream(struct wk_call *c, uint64_t at)
{
	must("the stream goes", wk_do_cuStreamDestroy_v2(c, &(struct vg_cuStreamDestroy_v2_request){ .hStream = at }) ==
					CUDA_SUCCESS);
}

/* ---- the case that is asked for, in a session with a context */

struct test_case {
	const char *name;
	void (*run)(struct wk_call *c);
};

static inline int run_case(const struct test_case *cases, int argc, char **argv)
{
	struct wk_session *s = wk_session_create(&lane);
	struct wk_object *context;
	char message[512];
	struct wk_call c;

	pthread_mutex_init(&lane.lock, NULL);
	alarm(100);
	if (argc != 2 || wk_driver_load(NULL, message, sizeof(message)))
		return 2;
	while (cases->name && strcmp(cases->name, argv[1]))
		cases++;
	if (!cases->name)
		return 2;
	context = open_context(s, contexts);
	c = begin(s, context);
	cases->run(&c);
	wk_release(context);
	wk_session_destroy(s);
	return 0;
}

#endif
