/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: built by hand and captured from streams; what a capture refuses, and by which code. */
#include "graphs.h"

/* What add() launches is x * 3 + much, so that order shows. The executable graph outlives the other. */
static void explicit_graph(void)
{
	CUgraphNode nodes[3], found[4];
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph g;
	size_t n = 0;

	begin();
	OK(cuGraphCreate(&g, 0));
	nodes[0] = fill_node(g, NULL, 0, 0, 5);
	nodes[1] = add_node(g, &nodes[0], 1, 0, 2);
	nodes[2] = copy_node(g, &nodes[1], 1, 1, 0);
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 3);
	n = 4;
	OK(cuGraphGetNodes(g, found, &n));
	EXPECT(n == 3 && !memcmp(found, nodes, sizeof(nodes)) && !found[3]);
	n = 4;
	OK(cuGraphGetRootNodes(g, found, &n));
	EXPECT(n == 1 && found[0] == nodes[0]);
	OK(cuGraphNodeGetType(nodes[2], &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	exec = instantiate(g);
	OK(cuGraphDestroy(g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 17 && value(1) == 17);
	OK(cuGraphExecDestroy(exec));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
}

static void edges(void)
{
	CUgraphNode a, b, c, from[4], to[4], other;
	CUgraphExec exec;
	CUgraph g, h;
	size_t n;

	begin();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&h, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&g, 1));
	c = copy_node(g, NULL, 0, 1, 0);
	b = add_node(g, NULL, 0, 0, 2);
	a = fill_node(g, NULL, 0, 0, 5);
	other = fill_node(h, NULL, 0, 9, 1);
	OK(cuGraphAddDependencies(g, &a, &b, NULL, 1));
	OK(cuGraphAddDependencies(g, &b, &c, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &b, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &a, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &other, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(from, g, &other, 1));
	n = 4;
	OK(cuGraphGetEdges(g, from, to, NULL, &n));
	EXPECT(n == 2);
	n = 0;
	OK(cuGraphNodeGetDependencies(c, NULL, NULL, &n));
	EXPECT(n == 1);
	n = 1;
	OK(cuGraphNodeGetDependentNodes(a, from, NULL, &n));
	EXPECT(n == 1 && from[0] == b);
	exec = instantiate(g);
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(1) == 17);
	OK(cuGraphAddDependencies(g, &c, &a, NULL, 1)); /* a circle shows when the graph is to run */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, g, 0));
	OK(cuGraphRemoveDependencies(g, &c, &a, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &c, &a, NULL, 1));
	OK(cuGraphDestroyNode(b));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(b));
	n = 0;
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	EXPECT(n == 0);
	exec = instantiate(g);
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 5);
	OK(cuGraphDestroy(g));
	OK(cuGraphDestroy(h));
}

static void clones_and_children(void)
{
	CUgraphNode a, b, child;
	CUgraph g, h, clone;
	CUgraphNode found;

	begin();
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 3);
	OK(cuGraphClone(&clone, g));
	OK(cuGraphNodeFindInClone(&found, a, clone));
	EXPECT(found && found != a);
	b = add_node(g, &a, 1, 0, 10);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, b, clone));
	OK(cuGraphCreate(&h, 0));
	OK(cuGraphAddChildGraphNode(&child, h, NULL, 0, g));
	OK(cuGraphAddChildGraphNode(&found, h, &child, 1, g));
	OK(cuGraphDestroy(g));
	OK(cuGraphLaunch(instantiate(h), NULL));
	EXPECT(value(0) == 190);
	OK(cuGraphLaunch(instantiate(clone), NULL));
	EXPECT(value(0) == 573);
}

/* Parameters are those of the time of the call; changes of an executable graph are seen from its next launch on. */
static void updates(void)
{
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS k;
	CUgraphNode a, c;
	CUgraph g, h;
	CUgraphExec exec;
	CUdeviceptr p;
	void *params[2];
	unsigned much = 100, enabled;

	begin();
	p = word;
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 1);
	c = copy_node(g, &a, 1, 1, 0);
	exec = instantiate(g);
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 1);
	k = adding(&p, &much, params);
	OK(cuGraphExecKernelNodeSetParams(exec, a, &k));
	much = 7;
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 103);
	OK(cuGraphKernelNodeSetParams(a, &k));
	OK(cuGraphExecUpdate(exec, g, &info));
	EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 316);
	OK(cuGraphCreate(&h, 0));
	add_node(h, NULL, 0, 0, 1);
	EXPECT_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, h, &info));
	EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, c, &k));
	OK(cuGraphNodeSetEnabled(exec, a, 0));
	OK(cuGraphNodeGetEnabled(exec, a, &enabled));
	EXPECT(!enabled);
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 316);
}

/* What a node does can be read. */
static void read_back(void)
{
	CUgraphNode a, b, child;
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_MEMSET_NODE_PARAMS m;
	CUgraph g, h, inner;

	begin();
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 7);
	b = fill_node(g, &a, 1, 3, 9);
	OK(cuGraphKernelNodeGetParams(a, &k));
	EXPECT(k.func == add_to && k.blockDimX == 1 && *(unsigned *)k.kernelParams[1] == 7);
	OK(cuGraphMemsetNodeGetParams(b, &m));
	EXPECT(m.dst == word + 12 && m.value == 9);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(a, &m));
	OK(cuGraphCreate(&h, 0));
	OK(cuGraphAddChildGraphNode(&child, h, NULL, 0, g));
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	EXPECT(inner && inner != g);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
}

static void one_stream(void)
{
	CUstreamCaptureStatus status;
	CUstream s;
	CUgraph g;
	CUgraphExec exec;
	size_t n = 0;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamIsCapturing(s, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuMemsetD32Async(word, 1, 2, s));
	for (int i = 0; i < 4; i++)
		add(0, 1, s);
	OK(cuMemcpyDtoDAsync(word + 8, word, 4, s));
	g = end(s);
	OK(cuStreamIsCapturing(s, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 6);
	EXPECT(value(0) == 0); /* nothing has run */
	exec = instantiate(g);
	for (int i = 0; i < 50; i++)
		OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 121 && value(1) == 1 && value(2) == 121);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(g));
}

/* s forks to t by an event, t joins again: two arms of a diamond. */
static void fork_and_join(void)
{
	CUstreamCaptureStatus status;
	CUevent forked, joined;
	CUgraphExec exec;
	CUstream s, t;
	CUgraph g;
	size_t n = 0;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	t = stream(CU_STREAM_DEFAULT);
	forked = event();
	joined = event();
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(word, 1, 3, s));
	OK(cuEventRecord(forked, s));
	OK(cuStreamWaitEvent(t, forked, 0));
	OK(cuStreamIsCapturing(t, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	add(0, 1, s);
	add(1, 2, t);
	OK(cuEventRecord(joined, t));
	OK(cuStreamWaitEvent(s, joined, 0));
	OK(cuMemcpyDtoDAsync(word + 8, word + 4, 4, s));
	g = end(s);
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	EXPECT(n == 4);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuEventQuery(joined));
	exec = instantiate(g);
	OK(cuGraphLaunch(exec, t));
	OK(cuGraphLaunch(exec, s));
	OK(cuCtxSynchronize());
	EXPECT(value(0) == 4 && value(1) == 5 && value(2) == 5);
	OK(cuEventRecord(joined, s)); /* an ordinary event again */
	OK(cuEventSynchronize(joined));
}

static void expect_end(CUresult expected, CUstream s)
{
	CUgraph g = (CUgraph)&g;

	EXPECT_ERROR(expected, cuStreamEndCapture(s, &g));
	EXPECT(!g);
	add(20, 1, s); /* the stream works again */
	OK(cuStreamSynchronize(s));
}

/* A stream that was joined may be gone before the capture ends; one that was not is missed. */
static void closed_forks(void)
{
	CUstream s, t;
	CUevent e;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	e = event();
	for (int joined = 1; joined >= 0; joined--) {
		t = stream(CU_STREAM_NON_BLOCKING);
		OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemsetD32Async(word, 1, 3, s));
		OK(cuEventRecord(e, s));
		OK(cuStreamWaitEvent(t, e, 0));
		add(1, 2, t);
		OK(cuEventRecord(e, t));
		if (joined)
			OK(cuStreamWaitEvent(s, e, 0));
		OK(cuStreamDestroy(t));
		add(0, 1, s);
		if (joined)
			OK(cuGraphLaunch(instantiate(end(s)), s));
		else
			expect_end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, s);
	}
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 4 && value(1) == 5);
}

static void refused(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream s, t, blocking;
	CUstreamCaptureStatus status;
	CUevent e, f;
	CUgraph g;
	CUdeviceptr more;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	t = stream(CU_STREAM_NON_BLOCKING);
	blocking = stream(CU_STREAM_DEFAULT);
	e = event();
	f = event();
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(s, 7));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &g));

	/* what cannot be captured spoils the capture */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	OK(cuStreamIsCapturing(s, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(word, 0, 4, s));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);

	/* memory is not to be allocated meanwhile, unless the capture or the thread says so */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&more, 64));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAlloc(&more, 64));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	EXPECT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamEndCapture(s, &g));

	/* the legacy stream waits for blocking streams */
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(word, 0, 4, NULL));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, blocking);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD8Async(word, 0, 4, NULL));
	OK(cuStreamEndCapture(s, &g));

	/* a fork that is not joined, an event from outside, one that belongs to another capture */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	add(0, 1, s);
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(t, e, 0));
	add(1, 1, t);
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &g));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	add(0, 1, s);
	OK(cuEventRecord(e, s));
	OK(cuStreamWaitEvent(t, e, 0));
	add(1, 1, t);
	expect_end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, s);
	OK(cuEventRecord(f, t));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, f, 0));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, s));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(t, e, 0));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, t);

	/* a question about a captured event */
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, s));
	EXPECT_ERROR(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	expect_end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, s);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamDestroy(s));
	OK(cuCtxSynchronize());
}

static CUstream captured;

static void *elsewhere(void *unused)
{
	CUdeviceptr p;
	CUgraph g;

	(void)unused;
	OK(cuCtxSetCurrent(context));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(captured, &g));
	OK(cuMemAlloc(&p, 64)); /* the capture is the other thread's own affair */
	return NULL;
}

static void *forbidden(void *unused)
{
	CUdeviceptr p;

	(void)unused;
	OK(cuCtxSetCurrent(context));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 64));
	return NULL;
}

static void threads(void)
{
	pthread_t thread;
	CUgraph g;

	begin();
	captured = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_create(&thread, NULL, elsewhere, NULL);
	pthread_join(thread, NULL);
	OK(cuStreamEndCapture(captured, &g));
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_create(&thread, NULL, forbidden, NULL);
	pthread_join(thread, NULL);
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &g));
}

/* A graph in a graph, by capture; events inside one. */
static void nested(void)
{
	CUgraphNode node, next;
	CUgraphExec inner, outer;
	CUgraph g;
	CUstream s;
	CUevent e;
	size_t n = 0;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	e = event();
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	add(0, 1, s);
	add(0, 1, s);
	inner = instantiate(end(s));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuGraphLaunch(inner, s));
	add(0, 10, s);
	g = end(s);
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 2);
	OK(cuGraphAddEventRecordNode(&node, g, NULL, 0, e));
	OK(cuGraphAddEventWaitNode(&next, g, &node, 1, e));
	outer = instantiate(g);
	OK(cuGraphLaunch(outer, s));
	OK(cuEventSynchronize(e));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 22);
}

/* Memory of the host is read and written at each launch. */
static void host_nodes(void)
{
	unsigned in = 5, out = 0;
	CUgraphExec exec;
	CUstream s;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemcpyHtoDAsync(word, &in, 4, s));
	add(0, 1, s);
	OK(cuMemcpyDtoHAsync(&out, word, 4, s));
	OK(cuLaunchHostFunc(s, call, (void *)3));
	exec = instantiate(end(s));
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	EXPECT(out == 16 && called == 3);
	in = 8;
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	EXPECT(out == 25 && called == 6);
}

/* What comes next can be told to wait for other nodes. */
static void dependencies(void)
{
	const CUgraphEdgeData *edges;
	const CUgraphNode *deps;
	CUstreamCaptureStatus status;
	CUgraphNode node;
	CUgraph g, done;
	cuuint64_t id;
	CUstream s;
	size_t n;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	add(0, 1, s);
	OK(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, &edges, &n));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id && g && n == 1);
	EXPECT(edges && edges[0].type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT); /* read by bindings, one for each */
	node = fill_node(g, deps, n, 5, 77);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(g));
	OK(cuStreamUpdateCaptureDependencies(s, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuMemcpyDtoDAsync(word + 24, word + 20, 4, s));
	done = end(s);
	EXPECT(done == g);
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 1 && value(6) == 77);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "explicit_graph", explicit_graph },
		{ "edges", edges },
		{ "clones_and_children", clones_and_children },
		{ "updates", updates },
		{ "read_back", read_back },
		{ "one_stream", one_stream },
		{ "fork_and_join", fork_and_join },
		{ "closed_forks", closed_forks },
		{ "refused", refused },
		{ "threads", threads },
		{ "nested", nested },
		{ "host_nodes", host_nodes },
		{ "dependencies", dependencies },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
