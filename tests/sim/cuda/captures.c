/* SPDX-License-Identifier: Apache-2.0 */
/* Captures that a program steers: into graphs that are there, with nodes of its own between, behind nodes that it names. */
#include "graphs.h"

static CUstreamCaptureStatus capturing(CUstream s, CUgraph *g, CUgraphNode *last)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *nodes;
	cuuint64_t id;
	size_t n;

	OK(cuStreamGetCaptureInfo(s, &status, &id, g, &nodes, NULL, &n));
	if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && last)
		*last = n ? nodes[n - 1] : NULL;
	return status;
}

/* As a framework does that puts a kernel of its own behind what a stream has captured. */
static void own_nodes(void)
{
	CUgraphNode last, mine, found[4];
	CUDA_KERNEL_NODE_PARAMS k;
	CUgraphNodeType type;
	CUgraph g, again;
	CUstream s;
	size_t n = 4;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD32Async(word, 1, 1, s));
	add(0, 1, s);
	EXPECT(capturing(s, &g, &last) == CU_STREAM_CAPTURE_STATUS_ACTIVE && last);
	mine = add_node(g, &last, 1, 0, 2);
	OK(cuStreamUpdateCaptureDependencies(s, &mine, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	add(0, 3, s);
	/* what is in it can be read meanwhile */
	OK(cuGraphGetNodes(g, found, &n));
	EXPECT(n == 4);
	OK(cuGraphNodeGetType(last, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_KERNEL);
	OK(cuGraphKernelNodeGetParams(mine, &k));
	EXPECT(*(unsigned *)k.kernelParams[1] == 2);
	EXPECT(capturing(s, &again, &last) == CU_STREAM_CAPTURE_STATUS_ACTIVE && again == g && last != mine);
	/* but nothing leaves it, and it is not run */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(mine));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&(CUgraphExec){ NULL }, g, 0));
	EXPECT(end(s) == g);
	OK(cuGraphKernelNodeGetParams(mine, &k));
	EXPECT(*(unsigned *)k.kernelParams[1] == 2);
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 45); /* ((1 * 3 + 1) * 3 + 2) * 3 + 3 */
	OK(cuGraphDestroy(g));
}

/* Behind other nodes than the last ones, behind more of them, and behind none. */
static void steered(void)
{
	CUgraphNode first, second;
	CUstream s, t;
	CUgraph g;
	size_t n = 0;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	t = stream(CU_STREAM_NON_BLOCKING);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE,
		     cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	add(0, 1, s);
	capturing(s, &g, &first);
	OK(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	add(1, 1, s);
	capturing(s, &g, &second);
	OK(cuGraphNodeGetDependencies(second, NULL, NULL, &n));
	EXPECT(n == 0);
	OK(cuStreamUpdateCaptureDependencies(s, &first, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	add(2, 1, s);
	capturing(s, &g, &first);
	OK(cuGraphNodeGetDependencies(first, NULL, NULL, &n));
	EXPECT(n == 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(s, &first, NULL, 1, 7));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(s, NULL, NULL, 1, 0));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(t, &first, NULL, 1, 0));
	g = end(s);
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 1 && value(1) == 1 && value(2) == 1);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(s, &first, NULL, 1, 0));
}

/* What a stream captures comes behind the nodes of a graph that are named; twice, by two captures. */
static void into_a_graph(void)
{
	unsigned there = 7, back = 0;
	CUgraphNode a, b;
	CUgraph g, same;
	CUstream s;
	size_t n = 0;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuGraphCreate(&g, 0));
	a = fill_node(g, NULL, 0, 0, 2);
	b = fill_node(g, NULL, 0, 1, 3);
	OK(cuStreamBeginCaptureToGraph(s, g, &a, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT(capturing(s, &same, NULL) == CU_STREAM_CAPTURE_STATUS_ACTIVE && same == g);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(g));
	add(0, 1, s);
	OK(cuLaunchHostFunc(s, call, (void *)2));
	OK(cuStreamEndCapture(s, &same));
	EXPECT(same == g);
	OK(cuStreamBeginCaptureToGraph(s, g, (CUgraphNode[]){ a, b }, NULL, 2, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemcpyHtoDAsync(word + 8, &there, 4, s));
	add(2, 1, s);
	OK(cuMemcpyDtoHAsync(&back, word + 8, 4, s));
	OK(cuStreamEndCapture(s, &same));
	EXPECT(same == g);
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 7);
	OK(cuGraphNodeGetDependentNodes(a, NULL, NULL, &n));
	EXPECT(n == 2);
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 7 && value(1) == 3 && back == 22 && called == 2);
	OK(cuGraphDestroy(g));
}

/* One that is of no use leaves the program's graph there; a stream that goes ends its capture. */
static void into_refused(void)
{
	CUgraphNode a, other;
	CUgraph g, h, same;
	CUstream s, t;
	size_t n;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	t = stream(CU_STREAM_NON_BLOCKING);
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&h, 0));
	a = fill_node(g, NULL, 0, 0, 2);
	other = fill_node(h, NULL, 0, 0, 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCaptureToGraph(s, g, &a, NULL, 1, 9));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCaptureToGraph(s, g, &other, NULL, 1, 0));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCaptureToGraph(NULL, g, NULL, NULL, 0, 0));
	OK(cuStreamBeginCaptureToGraph(s, g, &a, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCaptureToGraph(s, h, NULL, NULL, 0, 0));
	add(0, 1, s);
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &same));
	EXPECT(!same);
	n = 0;
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 2);
	OK(cuStreamBeginCaptureToGraph(t, g, &a, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	add(2, 2, t);
	OK(cuStreamDestroy(t));
	n = 0;
	OK(cuGraphGetNodes(g, NULL, &n));
	EXPECT(n == 3);
	fill_node(g, &a, 1, 1, 5);
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 7 && value(1) == 5 && value(2) == 2);
	/* a stream that goes with a graph that is known */
	t = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(capturing(t, &same, NULL) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	a = fill_node(same, NULL, 0, 0, 1);
	OK(cuStreamDestroy(t));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(same, NULL, &n));
	OK(cuGraphDestroy(g));
	OK(cuGraphDestroy(h));
	OK(cuCtxSynchronize());
}

/* One with memory that is freed meanwhile may be refused; then it has gone, and no later call has an error for it. */
static void into_freed(void)
{
	CUdeviceptr other;
	CUgraph g, same;
	CUresult r;
	CUstream s;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc(&other, 64));
	OK(cuGraphCreate(&g, 0));
	OK(cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemcpyDtoDAsync(word, other, 4, s));
	OK(cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){ CU_STREAM_CAPTURE_MODE_RELAXED }));
	OK(cuMemFree(other));
	r = cuStreamEndCapture(s, &same);
	EXPECT(cuGraphDestroy(g) == (r == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
	OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "own_nodes", own_nodes },
		{ "steered", steered },
		{ "into_a_graph", into_a_graph },
		{ "into_refused", into_refused },
		{ "into_freed", into_freed },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
