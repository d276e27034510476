/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes: what kernels decide, how often bodies run, how they are filled, read, changed and ended. */
#include "conditionals.h"

#include <unistd.h>

/* A kernel decides before the node; what comes behind waits for the body. */
static void either_or(void)
{
	begin_deciding();
	CUgraph g = new_graph(), bodies[2];
	CUgraphConditionalHandle h = new_handle(g, 0, 0);
	CUgraphNode first = deciding_node(g, NULL, 0, h, 7), node = conditional_node(g, &first, 1, h, CU_GRAPH_COND_TYPE_IF, 2, bodies);
	unsigned int zero = 0;
	CUDA_KERNEL_NODE_PARAMS k = { .func = decide, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = (void *[]){ &h, &zero } };
	CUgraphNodeType type;
	CUgraphExec e;

	add_node(bodies[0], NULL, 0, 0, 1);
	add_node(bodies[1], NULL, 0, 1, 1);
	copy_node(g, &node, 1, 2, 0);
	OK(cuGraphNodeGetType(node, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
	e = instantiate(g);
	run_graph(e);
	EXPECT(value(0) == 1 && value(1) == 0 && value(2) == 1);
	OK(cuGraphExecKernelNodeSetParams(e, first, &k));
	run_graph(e);
	EXPECT(value(0) == 1 && value(1) == 1 && value(2) == 1);
}

/* Without a body for 'else', and the value that each launch begins with. */
static void values_begin_anew(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), stays = new_handle(g, 1, 0);
	CUgraphNode node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
	CUgraphExec e;

	add_node(body, NULL, 0, 0, 1);
	deciding_node(g, &node, 1, h, 0); /* of this launch alone */
	node = conditional_node(g, &node, 1, stays, CU_GRAPH_COND_TYPE_IF, 1, &body);
	add_node(body, NULL, 0, 1, 1);
	deciding_node(g, &node, 1, stays, 1); /* of those behind it */
	e = instantiate(g);
	run_graph(e);
	EXPECT(value(0) == 1);
	run_graph(e);
	run_graph(e);
	EXPECT(value(0) == turns(0, 3, 1));
	/* what it begins with is nowhere documented: here it is 0, which shows who relies on it */
	EXPECT(value(1) == turns(0, 2, 1) || (!getenv("VGPUMGR_SIM") && value(1) == turns(0, 3, 1)));
}

static void loops(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode first = fill_node(g, NULL, 0, 0, 10), inner, node = conditional_node(g, &first, 1, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	CUgraphExec e;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	inner = add_node(body, NULL, 0, 1, 3);
	counting_node(body, &inner, 1, h, 0);
	copy_node(g, &node, 1, 2, 1);
	e = instantiate(g);
	run_graph(e);
	EXPECT(value(0) == 0 && value(1) == turns(0, 10, 3) && value(2) == value(1));
	for (int i = 0; i < 5; i++)
		OK(cuGraphLaunch(e, s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(1) == turns(0, 60, 3) && value(2) == value(1));
}

static void one_of_many(void)
{
	begin_deciding();
	enum { SIZE = 5 };
	CUgraph g = new_graph(), bodies[SIZE];
	CUgraphConditionalHandle h = new_handle(g, 0, 0);
	CUgraphNode first = deciding_node(g, NULL, 0, h, 0);
	CUgraphExec e;

	conditional_node(g, &first, 1, h, CU_GRAPH_COND_TYPE_SWITCH, SIZE, bodies);
	for (int i = 0; i < SIZE; i++)
		add_node(bodies[i], NULL, 0, i, 1);
	e = instantiate(g);
	for (unsigned int v = 0; v < SIZE + 3; v++) {
		unsigned int all = v < SIZE ? v : v == SIZE ? SIZE : UINT32_MAX;
		CUDA_KERNEL_NODE_PARAMS k = { .func = decide, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
					      .blockDimY = 1, .blockDimZ = 1, .kernelParams = (void *[]){ &h, &all } };

		OK(cuGraphExecKernelNodeSetParams(e, first, &k));
		run_graph(e);
		for (unsigned int i = 0; i < SIZE; i++)
			EXPECT(value(i) == (i <= v));
	}
}

/* Three times: a fill, a child graph, and, of two handles of the outer graph and of the body, a loop and a choice. */
static void one_inside_of_another(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body, inner, either[2], child = new_graph();
	CUgraphConditionalHandle outer = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT),
				 loop = new_handle(g, 0, 0), choice;
	CUgraphNode node = fill_node(g, NULL, 0, 0, 3), at;
	CUgraphExec e;

	conditional_node(g, &node, 1, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	choice = new_handle(body, 0, 0);
	add_node(child, NULL, 0, 1, 1);
	at = fill_node(body, NULL, 0, 2, 4);
	OK(cuGraphAddChildGraphNode(&at, body, &at, 1, child));
	at = deciding_node(body, &at, 1, loop, 1);
	at = conditional_node(body, &at, 1, loop, CU_GRAPH_COND_TYPE_WHILE, 1, &inner);
	node = add_node(inner, NULL, 0, 3, 1);
	counting_node(inner, &node, 1, loop, 2);
	at = counting_node(body, &at, 1, choice, 0);
	node = conditional_node(body, &at, 1, choice, CU_GRAPH_COND_TYPE_IF, 2, either);
	add_node(either[0], NULL, 0, 4, 1);
	OK(cuGraphAddEmptyNode(&at, either[1], NULL, 0));
	at = deciding_node(either[1], &at, 1, outer, 0); /* the last turn */
	add_node(either[1], &at, 1, 5, 1);
	e = instantiate(g);
	run_graph(e);
	EXPECT(value(0) == 0 && value(1) == turns(0, 3, 1) && value(2) == 0 && value(3) == turns(0, 12, 1));
	EXPECT(value(4) == turns(0, 2, 1) && value(5) == 1);
	run_graph(e);
	EXPECT(value(1) == turns(0, 6, 1) && value(3) == turns(0, 24, 1) && value(4) == turns(0, 4, 1) && value(5) == turns(0, 2, 1));
}

static void into_body(CUgraph body, CUstream s, CUgraphConditionalHandle h)
{
	CUdeviceptr p = word;
	CUgraph same;

	OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	add(1, 2, s);
	OK(cuLaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){ &h, &p }, NULL));
	OK(cuStreamEndCapture(s, &same));
	EXPECT(same == body);
}

/* As frameworks do it: a node is put into the graph of a capture, and its body is captured meanwhile. */
static void while_a_stream_captures(void)
{
	begin_deciding();
	CUstream s = stream(CU_STREAM_NON_BLOCKING), inner = stream(CU_STREAM_NON_BLOCKING);
	const CUgraphNode *deps;
	CUstreamCaptureStatus status;
	CUgraphConditionalHandle h;
	CUgraphNode node, known;
	CUgraph g, body, same;
	size_t n, count;
	CUgraphExec e;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(word, 4, 1, s));
	OK(cuStreamGetCaptureInfo(s, &status, NULL, &g, &deps, NULL, &n));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1);
	h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	known = conditional_node(g, deps, n, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	node = known;
	OK(cuStreamUpdateCaptureDependencies(s, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	into_body(body, inner, h);
	add(2, 5, s);
	OK(cuStreamEndCapture(s, &same));
	EXPECT(same == g);
	OK(cuGraphGetNodes(body, NULL, &count));
	EXPECT(count == 2);
	OK(cuGraphGetNodes(g, NULL, &count));
	EXPECT(count == 3);
	e = instantiate(g);
	run_graph(e);
	run_graph(e);
	EXPECT(value(0) == 0 && value(1) == turns(0, 8, 2) && value(2) == turns(0, 2, 5));
	/* a launch of it has no place in a capture */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(e, s));
	cuStreamEndCapture(s, &same);
}

static void expect_params(CUgraphNode node, const CUgraphNodeParams *wanted, const CUgraph *bodies)
{
	CUgraphNodeParams p, again;

	OK(cuGraphNodeGetParams(node, &p));
	OK(cuGraphNodeGetParams(node, &again));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
	EXPECT(p.conditional.handle == wanted->conditional.handle);
	EXPECT(p.conditional.type == wanted->conditional.type);
	EXPECT(p.conditional.size == wanted->conditional.size);
	EXPECT(p.conditional.ctx == context);
	EXPECT(p.conditional.phGraph_out == again.conditional.phGraph_out); /* the node's */
	for (unsigned int i = 0; i < p.conditional.size; i++)
		EXPECT(p.conditional.phGraph_out[i] == bodies[i]);
}

static void what_a_node_is(void)
{
	begin_deciding();
	CUgraph g = new_graph(), bodies[3], of;
	CUgraphConditionalHandle h = new_handle(g, 0, 0);
	CUgraphNodeParams p = conditional(h, CU_GRAPH_COND_TYPE_SWITCH, 3);
	CUgraphNode node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_SWITCH, 3, bodies), inner;
	char path[] = "/tmp/dotXXXXXX", text[4096] = "";
	int file = mkstemp(path);

	EXPECT(file >= 0);
	inner = add_node(bodies[1], NULL, 0, 0, 1);
	expect_params(node, &p, bodies);
	OK(cuGraphNodeGetContainingGraph(inner, &of));
	EXPECT(of == bodies[1]);
	OK(cuGraphDebugDotPrint(g, path, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS));
	EXPECT(read(file, text, sizeof(text) - 1) > 0);
	unlink(path);
	EXPECT(strstr(text, "CONDITIONAL") && strstr(text, "SWITCH of 3") && strstr(text, "add_to"));
	/* an array has graphs as it is asked for, and a node takes no other parameters */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(node, &(CUDA_KERNEL_NODE_PARAMS){ .func = NULL }));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphNodeSetParams(node, &p));
}

static CUgraphExecUpdateResult update(CUgraphExec e, CUgraph g, CUresult wanted)
{
	CUgraphExecUpdateResultInfo info;

	EXPECT_ERROR(wanted, cuGraphExecUpdate(e, g, &info));
	return info.result;
}

/* A graph of that shape: `times` in a loop, if it has a loop at all. */
static CUgraph counting_graph(CUgraphConditionalNodeType type, unsigned int times, unsigned int much, unsigned int initial,
			      CUgraphNode *adds)
{
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = new_handle(g, initial, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode first = fill_node(g, NULL, 0, 0, times);

	conditional_node(g, &first, 1, h, type, 1, &body);
	*adds = add_node(body, NULL, 0, 1, much);
	counting_node(body, adds, 1, h, 0);
	return g;
}

static void changed_where_they_run(void)
{
	begin_deciding();
	CUgraphNode adds, others;
	CUgraph g = counting_graph(CU_GRAPH_COND_TYPE_WHILE, 3, 1, 1, &adds), unused;
	CUgraphExec e = instantiate(g), second;
	CUdeviceptr p = word + 4;
	unsigned int much = 10, now;
	void *params[2];
	CUDA_KERNEL_NODE_PARAMS k = adding(&p, &much, params);

	run_graph(e);
	EXPECT(value(1) == (now = turns(0, 3, 1)));
	OK(cuGraphExecKernelNodeSetParams(e, adds, &k)); /* in the body */
	run_graph(e);
	EXPECT(value(1) == (now = turns(now, 3, 10)));
	EXPECT(update(e, g, CUDA_SUCCESS) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run_graph(e);
	EXPECT(value(1) == (now = turns(now, 3, 1)));
	/* another graph's handle, with its default, takes the place of the first one's */
	EXPECT(update(e, counting_graph(CU_GRAPH_COND_TYPE_WHILE, 2, 100, 1, &others), CUDA_SUCCESS) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run_graph(e);
	EXPECT(value(1) == (now = turns(now, 2, 100)));
	second = instantiate(g); /* which is free by that */
	run_graph(second);
	EXPECT(value(1) == (now = turns(now, 3, 1)));
	EXPECT(update(e, counting_graph(CU_GRAPH_COND_TYPE_WHILE, 2, 100, 0, &others), CUDA_SUCCESS) == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run_graph(e);
	EXPECT(value(1) == now);
	update(e, g, CUDA_ERROR_INVALID_VALUE); /* which the second one has */
	unused = counting_graph(CU_GRAPH_COND_TYPE_WHILE, 2, 100, 0, &others);
	new_handle(unused, 0, 0);
	update(e, unused, CUDA_ERROR_INVALID_VALUE);
	EXPECT(update(e, counting_graph(CU_GRAPH_COND_TYPE_IF, 2, 1, 1, &others), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) ==
	       CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
	run_graph(second);
	EXPECT(value(1) == turns(now, 3, 1));
}

/* Whatever goes first: the graph, the executable one, a node. */
static void ends(void)
{
	begin_deciding();
	CUgraphNode adds;
	CUgraph g = counting_graph(CU_GRAPH_COND_TYPE_WHILE, 50, 1, 1, &adds), bodies[1], same;
	CUgraphExec e = instantiate(g);
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUgraphConditionalHandle h;
	CUgraphNode node;

	OK(cuGraphDestroy(g));
	OK(cuGraphLaunch(e, s));
	OK(cuGraphExecDestroy(e)); /* what is launched goes on */
	OK(cuStreamSynchronize(s));
	EXPECT(value(1) == turns(0, 50, 1));
	g = new_graph();
	h = new_handle(g, 0, 0);
	node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, bodies);
	OK(cuStreamBeginCaptureToGraph(s, bodies[0], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(node));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&e, g, 0));
	OK(cuStreamEndCapture(s, &same));
	OK(cuGraphDestroyNode(node));
	OK(cuGraphDestroy(g));
}

/* A stream goes that captures into a body, or that has the graph around it: what is left may be used and ended. */
static void ended_by_their_streams(void)
{
	begin_deciding();
	CUstream s = stream(CU_STREAM_NON_BLOCKING), inner = stream(CU_STREAM_NON_BLOCKING);
	CUstreamCaptureStatus status;
	CUgraph g = new_graph(), body, same;
	CUgraphNode node = conditional_node(g, NULL, 0, new_handle(g, 1, 1), CU_GRAPH_COND_TYPE_IF, 1, &body);
	CUgraphExec e;

	OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	add(0, 1, s);
	OK(cuStreamDestroy(s));
	run_graph(instantiate(g)); /* with what it got */
	EXPECT(value(0) == 1);
	for (int ends_node = 0; ends_node < 2; ends_node++) {
		g = new_graph();
		node = conditional_node(g, NULL, 0, new_handle(g, 1, 1), CU_GRAPH_COND_TYPE_IF, 1, &body);
		s = stream(CU_STREAM_NON_BLOCKING);
		OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuStreamDestroy(s));
		if (ends_node)
			OK(cuGraphDestroyNode(node));
		OK(cuGraphDestroy(g));
		OK(cuGraphCreate(&g, 0));
	}
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamGetCaptureInfo(s, &status, NULL, &g, NULL, NULL, NULL));
	conditional_node(g, NULL, 0, new_handle(g, 1, 1), CU_GRAPH_COND_TYPE_IF, 1, &body);
	OK(cuStreamBeginCaptureToGraph(inner, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamDestroy(s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&e, body, 0));
	EXPECT(cuStreamEndCapture(inner, &same) != CUDA_SUCCESS);
	OK(cuStreamDestroy(inner));
	add(1, 1, 0);
	EXPECT(value(1) == 1);
}

/* Captures that are never ended leave nothing behind. */
static void dropped_captures(void)
{
	begin_deciding();
	enum { BODIES = 256 };
	CUstreamCaptureStatus status;
	CUgraph g, bodies[BODIES];
	CUstream s;

	for (int i = 0; i < 30; i++) {
		s = stream(CU_STREAM_NON_BLOCKING);
		OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuStreamGetCaptureInfo(s, &status, NULL, &g, NULL, NULL, NULL));
		conditional_node(g, NULL, 0, new_handle(g, 0, 0), CU_GRAPH_COND_TYPE_SWITCH, BODIES, bodies);
		OK(cuStreamDestroy(s));
	}
	new_graph();
}

static void a_loop_without_end(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUgraphExec e;

	conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	add_node(body, NULL, 0, 0, 1);
	e = instantiate(g);
	OK(cuGraphLaunch(e, s));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	while (value(0) < 10) /* other streams go on */
		;
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	OK(cuCtxDestroy(context));
	begin();
	add(0, 1, 0);
	EXPECT(value(0) == 1);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "either_or", either_or },
		{ "values_begin_anew", values_begin_anew },
		{ "loops", loops },
		{ "one_of_many", one_of_many },
		{ "one_inside_of_another", one_inside_of_another },
		{ "while_a_stream_captures", while_a_stream_captures },
		{ "what_a_node_is", what_a_node_is },
		{ "changed_where_they_run", changed_where_they_run },
		{ "ends", ends },
		{ "ended_by_their_streams", ended_by_their_streams },
		{ "dropped_captures", dropped_captures },
		{ "a_loop_without_end", a_loop_without_end },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
