/* SPDX-License-Identifier: Apache-2.0 */
/* graph_allocations: graphs that allocate what they work on, by nodes and as captured, and leave some of it to the program. */
#define PROGRAM "graph_allocations"
#include "check.h"

enum { N = 1000, ROUNDS = 3 };

__global__ void fill(int *to, int with)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		to[i] = i + with;
}

__global__ void twice(int *to, const int *from)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		to[i] = 2 * from[i];
}

static int host[N];

static void check(int with, const char *what)
{
	for (int i = 0; i < N; i++)
		if (host[i] != 2 * (i + with))
			FAIL("%s: element %d is %d", what, i, host[i]);
}

static cudaGraphNode_t allocation(cudaGraph_t graph, int **memory)
{
	cudaMemAllocNodeParams params = {};
	cudaGraphNode_t node;

	params.poolProps.allocType = cudaMemAllocationTypePinned;
	params.poolProps.location.type = cudaMemLocationTypeDevice;
	params.bytesize = sizeof(host);
	CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
	*memory = (int *)params.dptr;
	return node;
}

static cudaGraphNode_t kernel(cudaGraph_t graph, const void *function, void **arguments, cudaGraphNode_t behind)
{
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;

	params.func = (void *)function;
	params.gridDim = blocks_for(N, 128);
	params.blockDim = 128;
	params.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&node, graph, &behind, 1, &params));
	return node;
}

/* One piece of memory is the graph's alone; the other one stays behind each launch. */
static void by_nodes(cudaStream_t stream)
{
	cudaGraphNode_t first, second, done, freed;
	int *from, *to, with = 5;
	void *filled[] = { &from, &with }, *doubled[] = { &to, &from };
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	void *found;

	CHECK(cudaGraphCreate(&graph, 0));
	first = allocation(graph, &from);
	second = allocation(graph, &to);
	done = kernel(graph, (const void *)fill, filled, first);
	CHECK(cudaGraphAddDependencies(graph, &second, &done, nullptr, 1));
	done = kernel(graph, (const void *)twice, doubled, done);
	CHECK(cudaGraphAddMemFreeNode(&freed, graph, &done, 1, from));
	CHECK(cudaGraphMemFreeNodeGetParams(freed, &found));
	if (found != from)
		FAIL("the node frees %p instead of %p", found, (void *)from);
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	REFUSED(cudaFreeAsync(to, stream), cudaErrorInvalidValue);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK(cudaGraphLaunch(exec, stream));
		REFUSED(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
		CHECK(cudaMemcpyAsync(host, to, sizeof(host), cudaMemcpyDeviceToHost, stream));
		CHECK(cudaFreeAsync(to, stream));
		CHECK(cudaStreamSynchronize(stream));
		check(with, "by nodes");
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
}

static void as_captured(cudaStream_t stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	int *from, *to;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	CHECK(cudaMallocAsync(&from, sizeof(host), stream));
	CHECK(cudaMallocAsync(&to, sizeof(host), stream));
	fill<<<blocks_for(N, 128), 128, 0, stream>>>(from, 9);
	twice<<<blocks_for(N, 128), 128, 0, stream>>>(to, from);
	CHECK(cudaFreeAsync(from, stream));
	CHECK(cudaMemcpyAsync(host, to, sizeof(host), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaFreeAsync(to, stream));
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int round = 0; round < ROUNDS; round++) {
		host[0] = -1;
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		check(9, "as captured");
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
}

int main()
{
	unsigned long long now = 1, high = 0;
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	by_nodes(stream);
	as_captured(stream);
	CHECK(cudaDeviceGraphMemTrim(0));
	CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &now));
	CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &high));
	if (now || high < sizeof(host))
		FAIL("%llu bytes are reserved, %llu were", now, high);
	PASS("%d elements in memory of graphs", N);
}
