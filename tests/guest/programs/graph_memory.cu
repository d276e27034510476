/* SPDX-License-Identifier: Apache-2.0 */
/* graph_memory: a graph waits for a value that another stream writes, computes, and writes one that a second graph waits for. */
#define PROGRAM "graph_memory"
#include "driver.h"

enum { N = 1000, ROUNDS = 3 };

__global__ void add(int *to, int much)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < N)
		to[i] += much;
}

static CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType kind, unsigned *at, unsigned value)
{
	CUstreamBatchMemOpParams p = {};

	p.operation = kind;
	p.waitValue.address = (CUdeviceptr)at;
	p.waitValue.value = value;
	p.waitValue.flags = 0; /* of a wait: until it is as much, or more */
	return p;
}

/* Waits for words[0], adds 1, and tells words[1]: by hand, changed for each round. */
static void first_graph(int *data, unsigned *words, cudaGraph_t *graph, cudaGraphNode_t *wait, cudaGraphNode_t *tell)
{
	DRIVER(cuGraphAddBatchMemOpNode);
	CUstreamBatchMemOpParams p = operation(CU_STREAM_MEM_OP_WAIT_VALUE_32, words, 1);
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};
	cudaKernelNodeParams kernel = {};
	int much = 1;
	void *arguments[] = { &data, &much };
	cudaGraphNode_t node;

	params.count = 1;
	params.paramArray = &p;
	CHECK(cudaGraphCreate(graph, 0));
	DRIVE(drv_cuGraphAddBatchMemOpNode((CUgraphNode *)wait, (CUgraph)*graph, nullptr, 0, &params));
	kernel.func = (void *)add;
	kernel.gridDim = blocks_for(N, 128);
	kernel.blockDim = 128;
	kernel.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&node, *graph, wait, 1, &kernel));
	p = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, words + 1, 1);
	DRIVE(drv_cuGraphAddBatchMemOpNode((CUgraphNode *)tell, (CUgraph)*graph, (CUgraphNode *)&node, 1, &params));
}

static void set_value(cudaGraphExec_t exec, cudaGraphNode_t node, CUstreamBatchMemOpType kind, unsigned *at, unsigned value)
{
	DRIVER(cuGraphExecBatchMemOpNodeSetParams);
	CUstreamBatchMemOpParams p = operation(kind, at, value);
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};

	params.count = 1;
	params.paramArray = &p;
	DRIVE(drv_cuGraphExecBatchMemOpNodeSetParams((CUgraphExec)exec, (CUgraphNode)node, &params));
}

/* Waits for words[1], and adds 10: as a stream captured it. */
static cudaGraph_t second_graph(int *data, unsigned *words, cudaStream_t stream)
{
	DRIVER(cuStreamWaitValue32);
	cudaGraph_t graph;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	DRIVE(drv_cuStreamWaitValue32((CUstream)stream, (CUdeviceptr)(words + 1), 1, CU_STREAM_WAIT_VALUE_GEQ));
	add<<<blocks_for(N, 128), 128, 0, stream>>>(data, 10);
	CHECK(cudaStreamEndCapture(stream, &graph));
	return graph;
}

int main()
{
	DRIVER(cuStreamWriteValue32);
	static int host[N];
	cudaGraphNode_t wait, tell;
	cudaGraphExec_t one, two;
	cudaStream_t streams[3];
	cudaGraph_t graph;
	unsigned *words;
	int *data;

	for (auto &stream : streams)
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&data, sizeof(host)));
	CHECK(cudaMalloc(&words, 64));
	CHECK(cudaMemset(data, 0, sizeof(host)));
	CHECK(cudaMemset(words, 0, 64));
	CHECK(cudaDeviceSynchronize());
	first_graph(data, words, &graph, &wait, &tell);
	CHECK(cudaGraphInstantiate(&one, graph, 0));
	CHECK(cudaGraphInstantiate(&two, second_graph(data, words, streams[1]), 0));
	for (unsigned round = 1; round <= ROUNDS; round++) {
		set_value(one, wait, CU_STREAM_MEM_OP_WAIT_VALUE_32, words, round);
		set_value(one, tell, CU_STREAM_MEM_OP_WRITE_VALUE_32, words + 1, round);
		CHECK(cudaGraphLaunch(one, streams[0]));
		if (cudaStreamQuery(streams[0]) != cudaErrorNotReady)
			FAIL("the graph has not waited in round %u", round);
		DRIVE(drv_cuStreamWriteValue32((CUstream)streams[2], (CUdeviceptr)words, round, 0));
		CHECK(cudaStreamSynchronize(streams[0]));
	}
	CHECK(cudaGraphLaunch(two, streams[1]));
	CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, streams[1]));
	CHECK(cudaStreamSynchronize(streams[1]));
	for (int i = 0; i < N; i++)
		if (host[i] != ROUNDS + 10)
			FAIL("element %d is %d", i, host[i]);
	PASS("%d elements by graphs that wait for memory", N);
}
