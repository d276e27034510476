/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that allocate memory and free it: added, captured, launched, freed outside, and what may not be done with them. */
#include "graphs.h"

enum { BYTES = 1 << 20 };

static CUgraph new_graph(void)
{
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	return g;
}

static CUDA_MEM_ALLOC_NODE_PARAMS wanted(size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .bytesize = bytes };

	p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return p;
}

static CUgraphNode allocation(CUgraph g, size_t bytes, CUdeviceptr *out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = wanted(bytes);
	CUgraphNode node;

	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	EXPECT(p.dptr);
	*out = p.dptr;
	return node;
}

static CUgraphNode freeing(CUgraph g, CUgraphNode behind, CUdeviceptr memory)
{
	CUgraphNode node;

	OK(cuGraphAddMemFreeNode(&node, g, &behind, behind ? 1 : 0, memory));
	return node;
}

static CUgraphNode filling(CUgraph g, CUgraphNode behind, CUdeviceptr memory, unsigned what)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = memory, .value = what, .elementSize = 4, .width = 16, .height = 1 };
	CUgraphNode node;

	OK(cuGraphAddMemsetNode(&node, g, &behind, 1, &fill, context));
	return node;
}

/* From the graph's memory to a word that stays. */
static CUgraphNode keeping(CUgraph g, CUgraphNode behind, CUdeviceptr memory, int at)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = word + 4 * at,
			       .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUgraphNode node;

	OK(cuGraphAddMemcpyNode(&node, g, &behind, 1, &copy, context));
	return node;
}

static void run_graph(CUgraphExec e)
{
	OK(cuGraphLaunch(e, 0));
	OK(cuCtxSynchronize());
}

static cuuint64_t attribute(CUgraphMem_attribute which)
{
	cuuint64_t v;

	OK(cuDeviceGetGraphMemAttribute(0, which, &v));
	return v;
}

/* As often as it likes, at one address. */
static void memory_within_a_graph(void)
{
	CUgraphNode a, f, k;
	CUdeviceptr memory, found;
	CUgraphNodeType type;
	CUgraphExec e;
	CUgraph g;

	begin();
	g = new_graph();
	a = allocation(g, BYTES, &memory);
	f = filling(g, a, memory, 7);
	k = keeping(g, f, memory, 0);
	f = freeing(g, k, memory);
	OK(cuGraphNodeGetType(a, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	OK(cuGraphNodeGetType(f, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_MEM_FREE);
	OK(cuGraphMemFreeNodeGetParams(f, &found));
	EXPECT(found == memory);
	e = instantiate(g);
	for (int i = 0; i < 3; i++)
		run_graph(e);
	EXPECT(value(0) == 7);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, 0));
	OK(cuGraphDestroy(g));
	run_graph(e);
	OK(cuGraphExecDestroy(e));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 0, 4));
}

/* Usable behind the launch, until it is freed: then the graph may be launched again, and not before. */
static void memory_that_outlives_a_launch(void)
{
	CUstream s;
	CUgraphNode a;
	CUdeviceptr memory;
	unsigned found;
	CUgraphExec e;
	CUgraph g;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	g = new_graph();
	a = allocation(g, BYTES, &memory);
	filling(g, a, memory, 9);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, s)); /* no launch yet */
	e = instantiate(g);
	for (int i = 0; i < 3; i++) {
		OK(cuGraphLaunch(e, s));
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(e, s));
		found = 0;
		OK(cuMemcpyDtoHAsync(&found, memory + 60, 4, s));
		OK(cuStreamSynchronize(s));
		EXPECT(found == 9);
		if (i)
			OK(cuMemFreeAsync(memory, s));
		else
			OK(cuMemFree(memory));
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, s)); /* twice */
	}
	/* it stays the program's when its graphs go */
	OK(cuGraphLaunch(e, s));
	OK(cuGraphExecDestroy(e));
	OK(cuGraphDestroy(g));
	OK(cuMemcpyDtoHAsync(&found, memory, 4, s));
	OK(cuStreamSynchronize(s));
	EXPECT(found == 9);
	OK(cuMemFreeAsync(memory, s));
	OK(cuStreamSynchronize(s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
}

static void memory_freed_by_another_graph(void)
{
	CUgraph g, h, third;
	CUdeviceptr memory;
	CUgraphExec e, f;
	CUgraphNode node;

	begin();
	g = new_graph(), h = new_graph(), third = new_graph();
	node = allocation(g, BYTES, &memory);
	filling(g, node, memory, 5);
	node = keeping(h, fill_node(h, NULL, 0, 3, 1), memory, 0);
	freeing(h, node, memory);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, h, NULL, 0, memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, g, NULL, 0, memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, third, NULL, 0, memory));
	e = instantiate(g), f = instantiate(h);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(f, 0)); /* nothing to free */
	for (int i = 0; i < 2; i++) {
		OK(cuGraphLaunch(e, 0));
		OK(cuGraphLaunch(f, 0));
	}
	OK(cuCtxSynchronize());
	EXPECT(value(0) == 5);
	OK(cuGraphExecDestroy(f));
	OK(cuGraphDestroy(h));
	freeing(third, NULL, memory); /* none frees it any more */
	OK(cuGraphLaunch(e, 0));
	run_graph(instantiate(third));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
}

static void memory_freed_on_launch(void)
{
	CUgraphNode a;
	CUdeviceptr memory;
	CUgraphExec e;
	CUgraph g;

	begin();
	g = new_graph();
	a = allocation(g, BYTES, &memory);
	keeping(g, filling(g, a, memory, 3), memory, 0);
	OK(cuGraphInstantiate(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	for (int i = 0; i < 3; i++)
		run_graph(e);
	EXPECT(value(0) == 3);
	OK(cuMemFree(memory));
	run_graph(e);
	OK(cuGraphExecDestroy(e));
	OK(cuGraphDestroy(g));
	OK(cuMemFree(memory)); /* of the last launch */
}

/* As documented: no copies, no child graphs, one executable graph, nothing is taken out. */
static void limits_of_graphs_with_memory(void)
{
	CUgraph g, h, inner, clone;
	CUgraphNode a, b, child, node;
	CUgraphExecUpdateResultInfo info;
	CUgraphExec e, other;
	CUdeviceptr memory;
	CUstream s;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	g = new_graph(), h = new_graph(), inner = new_graph();
	a = allocation(g, BYTES, &memory);
	b = filling(g, a, memory, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(b));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &a, &b, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphClone(&clone, g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&child, h, NULL, 0, g));
	OK(cuGraphAddChildGraphNode(&child, h, NULL, 0, inner));
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, inner, NULL, 0, &(CUDA_MEM_ALLOC_NODE_PARAMS){
		wanted(4).poolProps, .bytesize = 4 }));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, inner, NULL, 0, memory));
	e = instantiate(g);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&other, g, 0));
	OK(cuGraphExecUpdate(e, g, &info));
	other = instantiate(h);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(other, child, g));
	EXPECT_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(other, g, &info));
	EXPECT_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, h, &info));
	OK(cuGraphLaunch(e, s));
	OK(cuMemFreeAsync(memory, s));
	OK(cuGraphExecDestroy(e));
	e = instantiate(g);
	OK(cuGraphLaunch(e, s));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(e, s));
	end(s);
}

static void captured_memory(void)
{
	CUgraphNode nodes[4];
	CUgraphNodeType type;
	CUdeviceptr inner, outer, before;
	CUmemoryPool pool;
	size_t count = 4;
	CUgraphExec e;
	CUstream s;
	CUgraph g;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAllocAsync(&before, 64, s));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&inner, BYTES, s));
	OK(cuMemsetD32Async(inner, 4, 8, s));
	OK(cuMemAllocFromPoolAsync(&outer, 64, pool, s));
	OK(cuMemcpyDtoDAsync(outer, inner, 4, s));
	OK(cuMemFreeAsync(inner, s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(inner, s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(before, s)); /* no graph's */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&before, 0, s));
	g = end(s);
	OK(cuGraphGetNodes(g, NULL, &count));
	EXPECT(count == 5);
	count = 1;
	OK(cuGraphGetRootNodes(g, nodes, &count));
	OK(cuGraphNodeGetType(nodes[0], &type));
	EXPECT(count == 1 && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	e = instantiate(g);
	OK(cuGraphDestroy(g));
	for (int i = 0; i < 2; i++) {
		unsigned found = 0;

		OK(cuGraphLaunch(e, s));
		OK(cuMemcpyDtoHAsync(&found, outer, 4, s));
		OK(cuStreamSynchronize(s));
		EXPECT(found == 4);
		OK(cuMemFreeAsync(outer, s));
	}
	OK(cuMemFreeAsync(before, s));
	OK(cuStreamSynchronize(s));
}

static void memory_by_type(void)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC }, q, f = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	CUDA_MEM_ALLOC_NODE_PARAMS read;
	CUgraphNode a, b;
	CUdeviceptr at;
	CUgraph g;

	begin();
	g = new_graph();
	p.alloc.poolProps = wanted(0).poolProps;
	p.alloc.bytesize = 100;
	OK(cuGraphAddNode(&a, g, NULL, NULL, 0, &p));
	EXPECT(p.alloc.dptr);
	f.free.dptr = p.alloc.dptr;
	OK(cuGraphAddNode(&b, g, &a, NULL, 1, &f));
	OK(cuGraphNodeGetParams(a, &q));
	EXPECT(q.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && q.alloc.dptr == p.alloc.dptr && q.alloc.bytesize == 100);
	EXPECT(q.alloc.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE && !q.alloc.poolProps.location.id);
	OK(cuGraphNodeGetParams(b, &q));
	EXPECT(q.type == CU_GRAPH_NODE_TYPE_MEM_FREE && q.free.dptr == p.alloc.dptr);
	OK(cuGraphMemAllocNodeGetParams(a, &read));
	EXPECT(read.dptr == p.alloc.dptr && read.bytesize == 100 && !read.accessDescCount);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemAllocNodeGetParams(b, &read));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemFreeNodeGetParams(a, &at));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemAllocNodeGetParams(a, NULL));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphNodeSetParams(a, &p)); /* documented */
	run_graph(instantiate(g));
}

static void wrong_memory(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = wanted(64);
	CUmemAccessDesc access = { .location = p.poolProps.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUgraphNode node;
	CUgraph g;
	size_t count;

	begin();
	g = new_graph();
	p.bytesize = 0;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	p = wanted(64);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(NULL, g, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, NULL, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, g, NULL, 0, NULL));
	p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	p = wanted(64);
	p.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	p = wanted(64);
	p.poolProps.location.id = 77;
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	p = wanted((size_t)1 << 50);
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	p = wanted(64);
	p.accessDescs = &access, p.accessDescCount = 1000;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, g, NULL, 0, word));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, g, NULL, 0, 0));
	OK(cuGraphGetNodes(g, NULL, &count));
	EXPECT(count == 0);
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	p.accessDescCount = 1;
	OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &p));
}

/* What there is of it is told, and all of it comes back: with graphs, with frees, and with a context. */
/* A capture of which nothing comes: it is spoilt, or its stream goes. */
static void memory_of_a_lost_capture(void)
{
	CUdeviceptr memory;
	CUstream s, t;
	size_t before;
	CUgraph g;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	before = available();
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAllocAsync(&memory, 8 * BYTES, s));
	EXPECT(available() < before);
	EXPECT(cuStreamQuery(s) != CUDA_SUCCESS);
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	EXPECT(available() == before);
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAllocAsync(&memory, 8 * BYTES, t));
	OK(cuStreamDestroy(t));
	EXPECT(available() == before);
}

static void memory_comes_back(void)
{
	cuuint64_t value = 0, one = 1;
	CUgraphNode a;
	CUdeviceptr memory, other;
	CUcontext second;
	size_t before;
	CUgraphExec e;
	CUstream s;
	CUgraph g;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	before = available();
	for (int i = 0; i < 3; i++) {
		g = new_graph();
		a = allocation(g, 8 * BYTES, &memory);
		filling(g, a, memory, 1);
		allocation(g, 8 * BYTES, &other);
		EXPECT(available() + 16 * BYTES <= before);
		EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 16 * BYTES);
		EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 16 * BYTES);
		e = instantiate(g);
		OK(cuGraphLaunch(e, s));
		OK(cuGraphDestroy(g));
		OK(cuMemFreeAsync(memory, s));
		OK(cuGraphExecDestroy(e));
		EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 8 * BYTES);
		OK(cuMemFree(other));
		OK(cuCtxSynchronize());
		OK(cuDeviceGraphMemTrim(0));
		EXPECT(available() == before);
	}
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAllocAsync(&memory, 8 * BYTES, s));
	OK(cuGraphDestroy(end(s)));
	EXPECT(available() == before);
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 16 * BYTES);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &one));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 16 * BYTES);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetGraphMemAttribute(0, 4, &value));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetGraphMemAttribute(77, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(77));
	second = new_context();
	before = available();
	g = new_graph();
	allocation(g, 8 * BYTES, &memory);
	OK(cuGraphLaunch(instantiate(g), 0));
	OK(cuCtxDestroy(second));
	EXPECT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	OK(cuCtxSetCurrent(context));
	EXPECT(available() > before);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "memory_within_a_graph", memory_within_a_graph },
		{ "memory_that_outlives_a_launch", memory_that_outlives_a_launch },
		{ "memory_freed_by_another_graph", memory_freed_by_another_graph },
		{ "memory_freed_on_launch", memory_freed_on_launch },
		{ "limits_of_graphs_with_memory", limits_of_graphs_with_memory },
		{ "captured_memory", captured_memory },
		{ "memory_by_type", memory_by_type },
		{ "wrong_memory", wrong_memory },
		{ "memory_comes_back", memory_comes_back },
		{ "memory_of_a_lost_capture", memory_of_a_lost_capture },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
