/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_reads: what the runtime tells of a graph's nodes, and nodes that are made of what it told; copies from and to
 * variables; a child graph that is changed where it runs.
 */
#define PROGRAM "graph_reads"
#include "check.h"

#include <dlfcn.h>

#include <cstring>

#define MUST(condition)                                                  \
	do {                                                             \
		if (!(condition))                                        \
			FAIL("line %d: not true: %s", __LINE__, #condition); \
	} while (0)

__device__ int variable[4];

__global__ void add(int *to, int much)
{
	*to += much;
}

static cudaGraphNode_t kernel_node(cudaGraph_t graph, int *to, int much)
{
	void *params[] = { &to, &much };
	cudaKernelNodeParams p = {};
	cudaGraphNode_t node;

	p.func = (void *)add;
	p.gridDim = p.blockDim = dim3(1);
	p.kernelParams = params;
	CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &p));
	return node;
}

static void run(cudaGraph_t graph)
{
	cudaGraphExec_t exec;

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaGraphExecDestroy(exec));
}

static int value(const int *at)
{
	int v;

	CHECK(cudaMemcpy(&v, at, sizeof(v), cudaMemcpyDeviceToHost));
	return v;
}

/* Each is read, and a second graph is made of that. */
static void read_back(int *memory)
{
	cudaMemsetParams m, fill = {};
	cudaMemcpy3DParms c;
	cudaKernelNodeParams k;
	cudaGraphNode_t kernel, copy, set, node;
	cudaGraph_t graph, again;
	int host = 11;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphCreate(&again, 0));
	kernel = kernel_node(graph, memory, 7);
	CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, memory + 1, &host, sizeof(host), cudaMemcpyHostToDevice));
	fill.dst = memory + 2, fill.value = 5, fill.elementSize = 4, fill.width = fill.height = 1;
	CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));

	CHECK(cudaGraphKernelNodeGetParams(kernel, &k));
	MUST(k.func == (void *)add && k.gridDim.x == 1 && *(int **)k.kernelParams[0] == memory && *(int *)k.kernelParams[1] == 7);
	CHECK(cudaGraphAddKernelNode(&node, again, nullptr, 0, &k));
	CHECK(cudaGraphMemcpyNodeGetParams(copy, &c));
	MUST(c.srcPtr.ptr == &host && c.dstPtr.ptr == memory + 1 && c.extent.width == 4 && c.kind == cudaMemcpyHostToDevice);
	CHECK(cudaGraphAddMemcpyNode(&node, again, nullptr, 0, &c));
	CHECK(cudaGraphMemsetNodeGetParams(set, &m));
	MUST(m.dst == memory + 2 && m.value == 5 && m.width == 1);
	CHECK(cudaGraphAddMemsetNode(&node, again, nullptr, 0, &m));
	run(again);
	MUST(value(memory) == 7 && value(memory + 1) == 11 && value(memory + 2) == 5);
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaGraphDestroy(again));
}

/* By their type, in the one call for all. */
static void any(int *memory)
{
	cudaGraphNodeParams p = {};
	cudaGraphNode_t node, next;
	cudaGraph_t graph;
	int much = 3, *to = memory + 3;
	void *params[] = { &to, &much };
	/* not in runtimes from before 13.2 */
	auto read_node = (cudaError_t(*)(cudaGraphNode_t, cudaGraphNodeParams *))dlsym(RTLD_DEFAULT, "cudaGraphNodeGetParams");

	CHECK(cudaGraphCreate(&graph, 0));
	p.type = cudaGraphNodeTypeMemset;
	p.memset.dst = memory + 3, p.memset.value = 1, p.memset.elementSize = 4, p.memset.width = p.memset.height = 1;
	CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &p));
	p.memset.value = 20;
	CHECK(cudaGraphNodeSetParams(node, &p));
	memset(&p, 0, sizeof(p));
	p.type = cudaGraphNodeTypeKernel;
	p.kernel.func = (void *)add;
	p.kernel.gridDim.x = p.kernel.gridDim.y = p.kernel.gridDim.z = 1;
	p.kernel.blockDim.x = p.kernel.blockDim.y = p.kernel.blockDim.z = 1;
	p.kernel.kernelParams = params;
	CHECK(cudaGraphAddNode(&next, graph, &node, nullptr, 1, &p));
	memset(&p, 0, sizeof(p));
	if (read_node)
		CHECK(read_node(next, &p));
	if (read_node)
		MUST(p.type == cudaGraphNodeTypeKernel && p.kernel.func == (void *)add && *(int *)p.kernel.kernelParams[1] == 3);
	run(graph);
	MUST(value(memory + 3) == 23);
	CHECK(cudaGraphDestroy(graph));
}

static void symbols(void)
{
	cudaGraphNode_t to, from;
	cudaGraph_t graph;
	int in = 42, out = 0, *address;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, variable, &in, sizeof(in), 8, cudaMemcpyHostToDevice));
	CHECK(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, &out, variable, sizeof(out), 8, cudaMemcpyDeviceToHost));
	run(graph);
	MUST(out == 42);
	CHECK(cudaGetSymbolAddress((void **)&address, variable));
	MUST(value(address + 2) == 42);
	CHECK(cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, &in, sizeof(in), 0, cudaMemcpyHostToDevice));
	CHECK(cudaGraphMemcpyNodeSetParamsFromSymbol(from, &out, variable, sizeof(out), 0, cudaMemcpyDeviceToHost));
	in = 43;
	run(graph);
	MUST(out == 43 && value(address) == 43);
	MUST(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, variable, &in, sizeof(in), 16, cudaMemcpyHostToDevice) ==
	     cudaErrorInvalidValue);
	MUST(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, variable, &in, sizeof(in), 0, cudaMemcpyDeviceToHost) ==
	     cudaErrorInvalidMemcpyDirection);
	(void)cudaGetLastError();
	CHECK(cudaGraphDestroy(graph));
}

static void children(int *memory)
{
	cudaGraphNode_t node, copied, list[2];
	cudaLaunchAttributeValue value_of = {};
	cudaGraph_t inner, other, outer, found;
	cudaGraphExec_t exec;
	size_t count = 2;

	CHECK(cudaMemset(memory, 0, 16));
	CHECK(cudaGraphCreate(&inner, 0));
	copied = kernel_node(inner, memory, 1);
	CHECK(cudaGraphCreate(&outer, 0));
	CHECK(cudaGraphAddChildGraphNode(&node, outer, nullptr, 0, inner));
	CHECK(cudaGraphChildGraphNodeGetGraph(node, &found));
	CHECK(cudaGraphGetNodes(found, list, &count));
	MUST(count == 1 && list[0] != copied);
	value_of.priority = 0;
	CHECK(cudaGraphKernelNodeSetAttribute(list[0], cudaLaunchAttributePriority, &value_of));
	CHECK(cudaGraphKernelNodeCopyAttributes(copied, list[0]));
	CHECK(cudaGraphInstantiate(&exec, outer, 0));
	CHECK(cudaGraphCreate(&other, 0));
	kernel_node(other, memory, 100);
	CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, other));
	CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaDeviceSynchronize());
	MUST(value(memory) == 100);
}

int main(void)
{
	int *memory;

	CHECK(cudaMalloc((void **)&memory, 4096));
	CHECK(cudaMemset(memory, 0, 4096));
	read_back(memory);
	any(memory);
	symbols();
	children(memory);
	PASS("as they were made");
}
