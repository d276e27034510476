/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conditionals: roots by a loop that ends where they are near enough, lengths of Collatz's sequences by a choice within a loop,
 * and one of several bodies. The graph of the first is captured, with its body, as frameworks do it.
 */
#define PROGRAM "conditionals"
#include "check.h"

#include <cmath>
#include <dlfcn.h>

enum { N = 300, COLLATZ = 27, LENGTH = 111, WAYS = 4 };

/* Newton's step for each; *left counts those that moved. */
__global__ void improve(const double *of, double *root, unsigned *left)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	double next;

	if (i >= N)
		return;
	next = (root[i] + of[i] / root[i]) / 2;
	if (fabs(next - root[i]) > 1e-12 * next)
		atomicAdd(left, 1);
	root[i] = next;
}

__global__ void go_on(cudaGraphConditionalHandle loop, unsigned *left, unsigned *turns)
{
	cudaGraphSetConditional(loop, *left);
	*left = 0;
	++*turns;
}

__global__ void look_at(cudaGraphConditionalHandle loop, cudaGraphConditionalHandle odd, unsigned *number, unsigned *length)
{
	cudaGraphSetConditional(odd, *number % 2 && *number != 1);
	cudaGraphSetConditional(loop, *number != 1);
	*length += *number != 1;
}

__global__ void change(unsigned *number, unsigned times, unsigned more, unsigned parts)
{
	if (*number != 1)
		*number = (*number * times + more) / parts;
}

__global__ void choose(cudaGraphConditionalHandle way, unsigned value)
{
	cudaGraphSetConditional(way, value);
}

static void add_kernel(cudaGraph_t graph, cudaGraphNode_t *last, void *function, dim3 grid, dim3 block, void **arguments)
{
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;

	params.func = function;
	params.gridDim = grid;
	params.blockDim = block;
	params.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&node, graph, last, *last != nullptr, &params));
	*last = node;
}

/* As the program has made it, if the runtime is one of those that tell. */
static void check_read(cudaGraphNode_t node, const cudaConditionalNodeParams *made)
{
	auto read = (cudaError_t(*)(cudaGraphNode_t, cudaGraphNodeParams *))dlsym(RTLD_DEFAULT, "cudaGraphNodeGetParams");
	cudaGraphNodeParams found = {};

	if (!read)
		return;
	CHECK(read(node, &found));
	if (found.type != cudaGraphNodeTypeConditional || found.conditional.handle != made->handle ||
	    found.conditional.type != made->type || found.conditional.size != made->size)
		FAIL("a node is read as another one");
	for (unsigned i = 0; i < made->size; i++)
		if (found.conditional.phGraph_out[i] != made->phGraph_out[i])
			FAIL("body %u is another graph", i);
}

static cudaGraph_t *add_conditional(cudaGraph_t graph, cudaGraphNode_t *last, const cudaGraphNode_t *behind, size_t count,
				    cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type, unsigned size)
{
	cudaGraphNodeParams params = {};
	cudaGraphNodeType found;

	params.type = cudaGraphNodeTypeConditional;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	CHECK(cudaGraphAddNode(last, graph, behind, nullptr, count, &params));
	CHECK(cudaGraphNodeGetType(*last, &found));
	if (found != cudaGraphNodeTypeConditional)
		FAIL("a node is of type %d", found);
	check_read(*last, &params.conditional);
	return params.conditional.phGraph_out;
}

static cudaGraph_t capture_roots(const double *of, double *root, unsigned *words)
{
	cudaStream_t outer, inner;
	cudaStreamCaptureStatus status;
	cudaGraphConditionalHandle loop;
	const cudaGraphNode_t *behind;
	cudaGraphNode_t node;
	cudaGraph_t graph, *body, same;
	size_t count;

	CHECK(cudaStreamCreateWithFlags(&outer, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking));
	CHECK(cudaStreamBeginCapture(outer, cudaStreamCaptureModeRelaxed));
	CHECK(cudaMemcpyAsync(root, of, N * sizeof(double), cudaMemcpyDeviceToDevice, outer));
	CHECK(cudaStreamGetCaptureInfo(outer, &status, nullptr, &graph, &behind, nullptr, &count));
	CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
	body = add_conditional(graph, &node, behind, count, loop, cudaGraphCondTypeWhile, 1);
	CHECK(cudaStreamUpdateCaptureDependencies(outer, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
	CHECK(cudaStreamBeginCaptureToGraph(inner, body[0], nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
	improve<<<blocks_for(N, 64), 64, 0, inner>>>(of, root, words);
	go_on<<<1, 1, 0, inner>>>(loop, words, words + 1);
	CHECK(cudaStreamEndCapture(inner, &same));
	CHECK(cudaStreamEndCapture(outer, &graph));
	return graph;
}

/* Also of a handle that is the body's. */
static cudaGraph_t count_lengths(unsigned *number, unsigned *length)
{
	cudaGraphConditionalHandle loop, odd;
	cudaGraphNode_t last = nullptr, inside = nullptr, either;
	unsigned three = 3, one = 1, none = 0, two = 2;
	void *up[] = { &number, &three, &one, &one }, *down[] = { &number, &one, &none, &two };
	cudaGraph_t graph, *body, *ways;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
	body = add_conditional(graph, &last, nullptr, 0, loop, cudaGraphCondTypeWhile, 1);
	CHECK(cudaGraphConditionalHandleCreate(&odd, body[0], 0, 0));
	void *asked[] = { &loop, &odd, &number, &length };
	add_kernel(body[0], &inside, (void *)look_at, 1, 1, asked);
	ways = add_conditional(body[0], &either, &inside, 1, odd, cudaGraphCondTypeIf, 2);
	inside = nullptr;
	add_kernel(ways[0], &inside, (void *)change, 1, 1, up);
	inside = nullptr;
	add_kernel(ways[1], &inside, (void *)change, 1, 1, down);
	return graph;
}

static void check_ways(unsigned *words)
{
	cudaGraphConditionalHandle way;
	cudaGraphNode_t first = nullptr, node;
	unsigned value = 0, found[WAYS];
	void *arguments[] = { &way, &value };
	cudaKernelNodeParams kernel = {};
	cudaMemsetParams fill = {};
	cudaGraphExec_t exec;
	cudaGraph_t graph, *ways;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&way, graph, 0, 0));
	add_kernel(graph, &first, (void *)choose, 1, 1, arguments);
	ways = add_conditional(graph, &node, &first, 1, way, cudaGraphCondTypeSwitch, WAYS);
	for (int i = 0; i < WAYS; i++) {
		fill.dst = words + i, fill.value = i + 10, fill.elementSize = 4, fill.width = fill.height = 1;
		CHECK(cudaGraphAddMemsetNode(&node, ways[i], nullptr, 0, &fill));
	}
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	kernel.func = (void *)choose, kernel.gridDim = kernel.blockDim = 1, kernel.kernelParams = arguments;
	for (value = 0; value < WAYS + 2; value += 2) {
		CHECK(cudaMemset(words, 0, sizeof(found)));
		CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &kernel));
		CHECK(cudaGraphLaunch(exec, 0));
		CHECK(cudaMemcpy(found, words, sizeof(found), cudaMemcpyDeviceToHost));
		for (unsigned i = 0; i < WAYS; i++)
			if (found[i] != (i == value ? i + 10 : 0))
				FAIL("way %u: word %u is %u", value, i, found[i]);
	}
}

static void run_twice(cudaGraph_t graph)
{
	cudaGraphExec_t exec;

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	for (int i = 0; i < 2; i++)
		CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaGraphExecDestroy(exec));
}

int main()
{
	static double of[N], root[N];
	unsigned *words, found[2], start[] = { COLLATZ, 0 };
	double *device;

	for (int i = 0; i < N; i++)
		of[i] = 1 + i * 0.37;
	CHECK(cudaMalloc(&device, 2 * sizeof(of)));
	CHECK(cudaMalloc(&words, 64));
	CHECK(cudaMemset(words, 0, 64));
	CHECK(cudaMemcpy(device, of, sizeof(of), cudaMemcpyHostToDevice));
	run_twice(capture_roots(device, device + N, words));
	CHECK(cudaMemcpy(root, device + N, sizeof(root), cudaMemcpyDeviceToHost));
	CHECK(cudaMemcpy(found, words, sizeof(found), cudaMemcpyDeviceToHost));
	for (int i = 0; i < N; i++)
		if (std::fabs(root[i] - std::sqrt(of[i])) > 1e-9)
			FAIL("the root of %g is %g", of[i], root[i]);
	if (found[0] || found[1] < 8 || found[1] > 40 || found[1] % 2)
		FAIL("%u are left after %u turns", found[0], found[1]);
	CHECK(cudaMemcpy(words, start, sizeof(start), cudaMemcpyHostToDevice));
	run_twice(count_lengths(words, words + 1));
	CHECK(cudaMemcpy(found, words, sizeof(found), cudaMemcpyDeviceToHost));
	if (found[0] != 1 || found[1] != LENGTH)
		FAIL("from %d it is %u after %u steps", COLLATZ, found[0], found[1]);
	check_ways(words);
	PASS("%d roots, and a sequence of %d steps", N, LENGTH);
}
