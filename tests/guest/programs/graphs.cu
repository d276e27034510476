/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs [N [LAUNCHES]]: a training step of sorts is captured once, over two streams, and launched again and again with
 * other input in the same memory, as frameworks do; then a changed step takes its place in the executable graph. A graph
 * built by hand computes the same. What may not be captured is refused, and the stream works on.
 */
#define PROGRAM "graphs"
#include "check.h"

#include <cstring>
#include <vector>

__global__ void scale(float *out, const float *in, float by, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = in[i] * by;
}

__global__ void accumulate(float *sum, const float *a, const float *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		sum[i] += a[i] + b[i];
}

struct memory {
	float *in, *left, *right, *sum, *out;
};

static float *floats(int n)
{
	float *p;

	CHECK(cudaMalloc((void **)&p, n * sizeof(float)));
	return p;
}

/* out = in * by + in * 10, by two streams; `repeats` times into the sum. */
static cudaGraph_t capture_step(const memory &m, cudaStream_t stream, cudaStream_t other, float by, int repeats, int n)
{
	const unsigned grid = blocks_for(n, 128);
	cudaStreamCaptureStatus status;
	cudaEvent_t fork, join;
	cudaGraph_t graph;

	CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
	CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMemsetAsync(m.sum, 0, n * sizeof(float), stream));
	CHECK(cudaEventRecord(fork, stream));
	CHECK(cudaStreamWaitEvent(other, fork, 0));
	scale<<<grid, 128, 0, stream>>>(m.left, m.in, by, n);
	scale<<<grid, 128, 0, other>>>(m.right, m.in, 10.0f, n);
	CHECK(cudaEventRecord(join, other));
	CHECK(cudaStreamWaitEvent(stream, join, 0));
	for (int i = 0; i < repeats; i++)
		accumulate<<<grid, 128, 0, stream>>>(m.sum, m.left, m.right, n);
	CHECK(cudaMemcpyAsync(m.out, m.sum, n * sizeof(float), cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaStreamIsCapturing(other, &status));
	if (status != cudaStreamCaptureStatusActive)
		FAIL("the second stream has not joined the capture");
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaEventDestroy(fork));
	CHECK(cudaEventDestroy(join));
	return graph;
}

/* The same in another order, by hand. */
static cudaGraph_t build_step(const memory &m, float by, int n)
{
	float ten = 10.0f;
	int count = n;
	float by_hand = by;
	void *left[] = { (void *)&m.left, (void *)&m.in, &by_hand, &count };
	void *right[] = { (void *)&m.right, (void *)&m.in, &ten, &count };
	void *sum[] = { (void *)&m.sum, (void *)&m.left, (void *)&m.right, &count };
	cudaKernelNodeParams kernel = {};
	cudaMemsetParams fill = {};
	cudaGraphNode_t nodes[5];
	cudaGraph_t graph;

	kernel.gridDim = dim3(blocks_for(n, 128));
	kernel.blockDim = dim3(128);
	fill.dst = m.sum;
	fill.elementSize = 4;
	fill.width = n;
	fill.height = 1;
	CHECK(cudaGraphCreate(&graph, 0));
	kernel.func = (void *)scale;
	kernel.kernelParams = left;
	CHECK(cudaGraphAddKernelNode(&nodes[0], graph, nullptr, 0, &kernel));
	kernel.kernelParams = right;
	CHECK(cudaGraphAddKernelNode(&nodes[1], graph, nullptr, 0, &kernel));
	CHECK(cudaGraphAddMemsetNode(&nodes[2], graph, nullptr, 0, &fill));
	kernel.func = (void *)accumulate;
	kernel.kernelParams = sum;
	CHECK(cudaGraphAddKernelNode(&nodes[3], graph, nodes, 3, &kernel));
	CHECK(cudaGraphAddMemcpyNode1D(&nodes[4], graph, &nodes[3], 1, m.out, m.sum, n * sizeof(float),
				       cudaMemcpyDeviceToDevice));
	return graph;
}

static void launch(cudaGraphExec_t step, const memory &m, cudaStream_t stream, float input, float expected, int n)
{
	std::vector<float> host(n, input);

	for (int i = 0; i < n; i++)
		host[i] += (float)(i % 7);
	CHECK(cudaMemcpyAsync(m.in, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
	CHECK(cudaGraphLaunch(step, stream));
	CHECK(cudaMemcpyAsync(host.data(), m.out, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		if (host[i] != (input + (float)(i % 7)) * expected)
			FAIL("element %d is %g after input %g", i, host[i], input);
}

static void check_refusals(cudaStream_t stream, int n)
{
	cudaGraph_t graph = nullptr;
	void *memory;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	if (cudaMalloc(&memory, n) != cudaErrorStreamCaptureUnsupported)
		FAIL("memory was allocated while a stream was captured");
	if (cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureInvalidated || graph)
		FAIL("a capture went on after what is not permitted");
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	CHECK(cudaMalloc(&memory, n));
	if (cudaStreamSynchronize(stream) != cudaErrorStreamCaptureUnsupported)
		FAIL("a captured stream was waited for");
	if (cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureInvalidated)
		FAIL("a capture went on after a wait for its stream");
	(void)cudaGetLastError();
	CHECK(cudaMemsetAsync(memory, 0, n, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaFree(memory));
}

struct host_work {
	float *in, *out;
	int n, calls, wrong;
};

/* What the next copy of the same launch reads, and what the last one of the launch before has written. */
static void CUDART_CB prepare(void *data)
{
	struct host_work *w = (struct host_work *)data;

	for (int i = 0; i < w->n; i++) {
		w->wrong += w->calls && w->out[i] != (float)((w->calls - 1 + i % 7) * 3);
		w->in[i] = (float)(w->calls + i % 7);
	}
	w->calls++;
}

/* Copies of pageable memory and of pinned, and a function: captured, then as nodes; many launches without a wait. */
static void check_host_nodes(const memory &m, cudaStream_t stream, int n, int launches)
{
	std::vector<float> in(n), out(n);
	struct host_work w = { in.data(), out.data(), n, 0, 0 };
	cudaHostNodeParams function = {};
	cudaGraphNode_t nodes[3];
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float *pinned;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaLaunchHostFunc(stream, prepare, &w));
	CHECK(cudaMemcpyAsync(m.in, w.in, n * sizeof(float), cudaMemcpyHostToDevice, stream));
	scale<<<blocks_for(n, 128), 128, 0, stream>>>(m.out, m.in, 3.0f, n);
	CHECK(cudaMemcpyAsync(w.out, m.out, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < launches; i++)
		CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	if (w.calls != launches || w.wrong || out[n - 1] != (float)((launches - 1 + (n - 1) % 7) * 3))
		FAIL("%d of %d launches called the function; %d elements were wrong", w.calls, launches, w.wrong);

	CHECK(cudaMallocHost((void **)&pinned, n * sizeof(float)));
	w.calls = 0;
	w.in = pinned;
	function.fn = prepare;
	function.userData = &w;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddHostNode(&nodes[0], graph, nullptr, 0, &function));
	CHECK(cudaGraphAddMemcpyNode1D(&nodes[1], graph, nodes, 1, m.in, pinned, n * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaGraphAddMemcpyNode1D(&nodes[2], graph, nodes + 1, 1, w.out, m.in, n * sizeof(float), cudaMemcpyDeviceToHost));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		if (out[i] != (float)(i % 7))
			FAIL("element %d came back as %g", i, out[i]);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaFreeHost(pinned));
}

int main(int argc, char **argv)
{
	const int n = (int)argument(argc, argv, 1, 1000), launches = (int)argument(argc, argv, 2, 20);
	cudaGraphExecUpdateResultInfo info;
	cudaStream_t stream, other;
	cudaGraph_t first, second, longer;
	cudaGraphExec_t step, built;
	memory m = { floats(n), floats(n), floats(n), floats(n), floats(n) };
	size_t nodes = 0;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	first = capture_step(m, stream, other, 2.0f, 1, n);
	CHECK(cudaGraphGetNodes(first, nullptr, &nodes));
	if (nodes != 5)
		FAIL("%zu nodes were captured", nodes);
	CHECK(cudaGraphInstantiate(&step, first, 0));
	CHECK(cudaGraphDestroy(first));
	for (int i = 0; i < launches; i++)
		launch(step, m, stream, (float)i, 12.0f, n);

	second = capture_step(m, stream, other, 4.0f, 1, n);
	longer = capture_step(m, stream, other, 4.0f, 3, n);
	CHECK(cudaGraphExecUpdate(step, second, &info));
	launch(step, m, stream, 3.0f, 14.0f, n);
	if (cudaGraphExecUpdate(step, longer, &info) != cudaErrorGraphExecUpdateFailure ||
	    info.result != cudaGraphExecUpdateErrorTopologyChanged)
		FAIL("an executable graph took over more nodes than it has");
	(void)cudaGetLastError();
	launch(step, m, stream, 4.0f, 14.0f, n);

	first = build_step(m, 6.0f, n);
	CHECK(cudaGraphInstantiate(&built, first, 0));
	launch(built, m, stream, 5.0f, 16.0f, n);
	launch(step, m, stream, 6.0f, 14.0f, n);
	check_refusals(stream, n);
	check_host_nodes(m, stream, n, launches);
	launch(built, m, stream, 7.0f, 16.0f, n);
	CHECK(cudaGraphExecDestroy(step));
	CHECK(cudaGraphExecDestroy(built));
	CHECK(cudaGraphDestroy(first));
	CHECK(cudaGraphDestroy(second));
	CHECK(cudaGraphDestroy(longer));
	CHECK(cudaDeviceSynchronize());
	PASS("%d elements, %d launches", n, launches);
}
