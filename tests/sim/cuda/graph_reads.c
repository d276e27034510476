/* SPDX-License-Identifier: Apache-2.0 */
/* What a program reads back of graphs: nodes by their type, child graphs, attributes of kernels, numbers, a picture. */
#include <unistd.h>

#include "graphs.h"

static CUgraphNode host_copy(CUgraph g, void *to, int from)
{
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = word + 4 * from, .dstHost = to,
			    .dstMemoryType = CU_MEMORYTYPE_HOST, .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUgraphNode node;

	OK(cuGraphAddMemcpyNode(&node, g, NULL, 0, &c, context));
	return node;
}

static CUgraphNode function_node(CUgraph g, intptr_t data)
{
	CUDA_HOST_NODE_PARAMS h = { call, (void *)data };
	CUgraphNode node;

	OK(cuGraphAddHostNode(&node, g, NULL, 0, &h));
	return node;
}

static void by_type(void)
{
	unsigned there = 0, elsewhere = 0;
	CUDA_MEMCPY3D c, within = { .srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_HOST,
				    .srcHost = &there, .dstHost = &elsewhere, .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUDA_KERNEL_NODE_PARAMS k, again;
	CUDA_HOST_NODE_PARAMS h;
	CUDA_MEMSET_NODE_PARAMS m;
	CUgraphNode kernel, copy, from, fill, function, record, wait, both;
	CUgraphNodeType type;
	CUevent e, f, found;
	CUgraph g;

	begin();
	e = event();
	f = event();
	OK(cuGraphCreate(&g, 0));
	kernel = add_node(g, NULL, 0, 4, 7);
	copy = copy_node(g, NULL, 0, 3, 1);
	from = host_copy(g, &there, 2);
	fill = fill_node(g, NULL, 0, 5, 9);
	function = function_node(g, 3);
	OK(cuGraphAddEventRecordNode(&record, g, NULL, 0, e));
	OK(cuGraphAddEventWaitNode(&wait, g, NULL, 0, f));
	OK(cuGraphAddMemcpyNode(&both, g, NULL, 0, &within, context));

	OK(cuGraphKernelNodeGetParams(kernel, &k));
	EXPECT(k.func == add_to && k.gridDimX == 1 && k.blockDimZ == 1 && !k.sharedMemBytes && !k.extra);
	EXPECT(*(CUdeviceptr *)k.kernelParams[0] == word + 16 && *(unsigned *)k.kernelParams[1] == 7);
	OK(cuGraphKernelNodeGetParams(kernel, &again));
	EXPECT(again.kernelParams == k.kernelParams);
	OK(cuGraphMemcpyNodeGetParams(copy, &c));
	EXPECT(c.srcMemoryType == CU_MEMORYTYPE_DEVICE && c.srcDevice == word + 4 && c.dstDevice == word + 12);
	EXPECT(c.WidthInBytes == 4 && c.Height == 1 && c.Depth == 1);
	OK(cuGraphMemcpyNodeGetParams(from, &c));
	EXPECT(c.dstMemoryType == CU_MEMORYTYPE_HOST && c.dstHost == &there && c.srcDevice == word + 8 && c.WidthInBytes == 4);
	OK(cuGraphMemcpyNodeGetParams(both, &c));
	EXPECT(c.srcHost == &there && c.dstHost == &elsewhere);
	OK(cuGraphNodeGetType(both, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	OK(cuGraphMemsetNodeGetParams(fill, &m));
	EXPECT(m.dst == word + 20 && m.value == 9 && m.elementSize == 4 && m.width == 1 && m.height == 1);
	OK(cuGraphHostNodeGetParams(function, &h));
	EXPECT(h.fn == call && h.userData == (void *)3);
	OK(cuGraphEventRecordNodeGetEvent(record, &found));
	EXPECT(found == e);
	OK(cuGraphEventWaitNodeGetEvent(wait, &found));
	EXPECT(found == f);

	/* as what they are not, of what is gone, and nowhere */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(copy, &k));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(kernel, &m));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphEventWaitNodeGetEvent(record, &found));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphHostNodeGetParams(both, &h));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(copy, NULL));
	OK(cuGraphDestroyNode(fill));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(fill, &m));

	/* what was changed */
	k.kernelParams = (void *[]){ &(CUdeviceptr){ word + 32 }, &(unsigned){ 11 } };
	OK(cuGraphKernelNodeSetParams(kernel, &k));
	OK(cuGraphKernelNodeGetParams(kernel, &k));
	EXPECT(*(CUdeviceptr *)k.kernelParams[0] == word + 32 && *(unsigned *)k.kernelParams[1] == 11);
	OK(cuGraphHostNodeSetParams(function, &(CUDA_HOST_NODE_PARAMS){ call, (void *)5 }));
	OK(cuGraphHostNodeGetParams(function, &h));
	EXPECT(h.userData == (void *)5);
	OK(cuGraphDestroy(g));
}

/* One call for all types; what it gives makes the same nodes again. */
static void any_type(void)
{
	CUgraphNodeParams p;
	CUgraphNode kernel, fill, record, empty, child, again;
	CUgraph g, h, inner;
	CUevent e;

	begin();
	e = event();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&h, 0));
	kernel = add_node(g, NULL, 0, 0, 7);
	fill = fill_node(g, &kernel, 1, 1, 9);
	OK(cuGraphAddEventRecordNode(&record, g, &fill, 1, e));
	OK(cuGraphAddEmptyNode(&empty, g, NULL, 0));
	OK(cuGraphNodeGetParams(kernel, &p));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_KERNEL && p.kernel.func == add_to);
	OK(cuGraphAddNode_v3(&again, h, NULL, NULL, 0, &p));
	OK(cuGraphNodeGetParams(fill, &p));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_MEMSET && p.memset.value == 9);
	OK(cuGraphAddNode_v3(&again, h, &again, NULL, 1, &p));
	OK(cuGraphNodeGetParams(record, &p));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && p.eventRecord.event == e);
	OK(cuGraphNodeGetParams(empty, &p));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_EMPTY);
	OK(cuGraphAddChildGraphNode(&child, g, NULL, 0, h));
	OK(cuGraphNodeGetParams(child, &p));
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	EXPECT(p.type == CU_GRAPH_NODE_TYPE_GRAPH && p.graph.graph == inner &&
	       p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetParams(child, NULL));
	OK(cuGraphLaunch(instantiate(h), NULL));
	EXPECT(value(0) == 7 && value(1) == 9);
}

/* From the newest versions on, a kernel is of the context that is named. */
static void contexts_of_kernels(void)
{
	CUgraphNodeParams p;
	CUgraphNode kernel, more;
	CUcontext other;
	CUgraph g;

	begin();
	OK(cuGraphCreate(&g, 0));
	kernel = add_node(g, NULL, 0, 0, 7);
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuGraphNodeGetParams(kernel, &p));
	p.kernel.ctx = context;
	OK(cuGraphAddNode_v3(&more, g, NULL, NULL, 0, &p));
	OK(cuGraphNodeSetParams_v2(kernel, &p));
	p.kernel.ctx = other;
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuGraphAddNode_v3(&more, g, NULL, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, cuGraphNodeSetParams_v2(kernel, &p));
}

static CUgraphNode nth(CUgraph g, size_t n, CUgraphNodeType wanted)
{
	CUgraphNode nodes[8];
	CUgraphNodeType type;
	size_t count = 8;

	OK(cuGraphGetNodes(g, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		if (type == wanted && !n--)
			return nodes[i];
	}
	FAIL("no such node");
}

/* A captured graph is read like one that was built. */
static void captured_nodes(void)
{
	unsigned there = 5;
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_HOST_NODE_PARAMS h;
	CUDA_MEMCPY3D c;
	CUstream s;
	CUgraph g;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemcpyHtoDAsync(word, &there, 4, s));
	add(0, 3, s);
	add(0, 4, s);
	OK(cuLaunchHostFunc(s, call, (void *)2));
	g = end(s);
	OK(cuGraphKernelNodeGetParams(nth(g, 1, CU_GRAPH_NODE_TYPE_KERNEL), &k));
	EXPECT(k.func == add_to && *(CUdeviceptr *)k.kernelParams[0] == word && *(unsigned *)k.kernelParams[1] == 4);
	OK(cuGraphMemcpyNodeGetParams(nth(g, 0, CU_GRAPH_NODE_TYPE_MEMCPY), &c));
	EXPECT(c.srcHost == &there && c.dstDevice == word && c.WidthInBytes == 4);
	OK(cuGraphHostNodeGetParams(nth(g, 0, CU_GRAPH_NODE_TYPE_HOST), &h));
	EXPECT(h.fn == call && h.userData == (void *)2);
	/* changed, it runs so */
	k.kernelParams = (void *[]){ &(CUdeviceptr){ word }, &(unsigned){ 10 } };
	OK(cuGraphKernelNodeSetParams(nth(g, 0, CU_GRAPH_NODE_TYPE_KERNEL), &k));
	OK(cuGraphLaunch(instantiate(g), s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 79 && called == 2);
}

/* A child graph has a handle, and is changed by it; it goes with its node. */
static void children(void)
{
	unsigned there = 0;
	CUgraphNode a, b, child, nodes[4], found, deeper;
	CUgraph g, h, inner, same, clone, innermost;
	CUDA_KERNEL_NODE_PARAMS k;
	CUgraphNodeType type;
	CUgraphExec exec;
	size_t n = 4;

	begin();
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 1);
	b = add_node(g, &a, 1, 0, 2);
	OK(cuGraphCreate(&h, 0));
	OK(cuGraphAddChildGraphNode(&child, h, NULL, 0, g));
	OK(cuGraphDestroy(g));
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	OK(cuGraphChildGraphNodeGetGraph(child, &same));
	EXPECT(inner && inner == same && inner != g);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
	OK(cuGraphGetNodes(inner, nodes, &n));
	EXPECT(n == 2 && nodes[0] != a && nodes[1] != b);
	OK(cuGraphNodeGetContainingGraph(nodes[0], &same));
	EXPECT(same == inner);
	OK(cuGraphKernelNodeGetParams(nodes[1], &k));
	EXPECT(*(unsigned *)k.kernelParams[1] == 2);
	k.kernelParams = (void *[]){ &(CUdeviceptr){ word }, &(unsigned){ 20 } };
	OK(cuGraphKernelNodeSetParams(nodes[1], &k));
	add_node(inner, &nodes[1], 1, 0, 5);
	function_node(inner, 1);
	host_copy(inner, &there, 0);
	n = 0;
	OK(cuGraphGetNodes(inner, NULL, &n));
	EXPECT(n == 5);
	exec = instantiate(h);
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	EXPECT(value(0) == 74 && called == 1);

	/* a clone has children of its own */
	OK(cuGraphClone(&clone, h));
	OK(cuGraphNodeFindInClone(&found, child, clone));
	OK(cuGraphChildGraphNodeGetGraph(found, &same));
	EXPECT(same != inner);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, nodes[0], clone));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddChildGraphNode(&deeper, g, NULL, 0, clone));
	OK(cuGraphChildGraphNodeGetGraph(deeper, &innermost));
	OK(cuGraphChildGraphNodeGetGraph(nth(innermost, 0, CU_GRAPH_NODE_TYPE_GRAPH), &innermost));
	n = 0;
	OK(cuGraphGetNodes(innermost, NULL, &n));
	EXPECT(n == 5);
	OK(cuGraphDestroy(g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(innermost, NULL, &n));

	OK(cuGraphDestroyNode(child));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(inner, NULL, &n));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(nodes[0], &type));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphChildGraphNodeGetGraph(a, &inner));
	OK(cuGraphGetNodes(same, NULL, &n));
	OK(cuGraphDestroy(clone));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(same, NULL, &n));
}

/* What a child graph's node runs is changed where it runs; its shape is not. */
static void exec_children(void)
{
	CUgraphNode a, child, kernel;
	CUgraphExec exec;
	CUgraph g, h, other;

	begin();
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 1);
	OK(cuGraphCreate(&h, 0));
	OK(cuGraphAddChildGraphNode(&child, h, NULL, 0, g));
	kernel = add_node(h, &child, 1, 1, 1);
	exec = instantiate(h);
	OK(cuGraphCreate(&other, 0));
	a = add_node(other, NULL, 0, 0, 10);
	OK(cuGraphExecChildGraphNodeSetParams(exec, child, other));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, kernel, other));
	add_node(other, &a, 1, 0, 10);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecChildGraphNodeSetParams(exec, child, other));
	OK(cuGraphDestroy(other));
	OK(cuGraphLaunch(exec, NULL));
	EXPECT(value(0) == 10 && value(1) == 1);
}

static void attributes(void)
{
	CUkernelNodeAttrValue v = { .priority = -1 };
	CUgraphNode a, b, fill;
	CUgraph g;

	begin();
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 1);
	b = add_node(g, NULL, 0, 1, 1);
	fill = fill_node(g, NULL, 0, 2, 1);
	OK(cuGraphKernelNodeSetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &v));
	memset(&v, 0, sizeof(v));
	OK(cuGraphKernelNodeGetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &v));
	EXPECT(v.priority == -1);
	OK(cuGraphKernelNodeGetAttribute(b, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &v));
	EXPECT(!v.cooperative);
	v.cooperative = 1;
	OK(cuGraphKernelNodeSetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &v));
	memset(&v, 0, sizeof(v));
	v.accessPolicyWindow = (CUaccessPolicyWindow){ .base_ptr = (void *)word, .num_bytes = 64, .hitRatio = 0.5,
						       .hitProp = CU_ACCESS_PROPERTY_PERSISTING };
	OK(cuGraphKernelNodeSetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.accessPolicyWindow.hitRatio = 2;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuGraphKernelNodeSetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	OK(cuGraphKernelNodeCopyAttributes(b, a));
	OK(cuGraphKernelNodeGetAttribute(b, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &v));
	EXPECT(v.cooperative == 1);
	OK(cuGraphKernelNodeGetAttribute(b, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	EXPECT(v.accessPolicyWindow.num_bytes == 64 && v.accessPolicyWindow.hitRatio == 0.5f);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetAttribute(a, (CUkernelNodeAttrID)77, &v));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetAttribute(fill, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &v));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeCopyAttributes(fill, a));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetAttribute(a, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, NULL));
	OK(cuGraphLaunch(instantiate(g), NULL));
	OK(cuCtxSynchronize());
	EXPECT(value(0) == 1 && value(1) == 1);
}

static void numbers(void)
{
	unsigned long long tool, other_tool;
	unsigned first, second, run;
	CUgraphNode a, b;
	CUgraph g, h, found;

	begin();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphCreate(&h, 0));
	a = add_node(g, NULL, 0, 0, 1);
	b = add_node(g, NULL, 0, 0, 1);
	OK(cuGraphGetId(g, &first));
	OK(cuGraphGetId(h, &second));
	OK(cuGraphExecGetId(instantiate(g), &run));
	EXPECT(first != second && run != first && run != second);
	OK(cuGraphNodeGetLocalId(a, &first));
	OK(cuGraphNodeGetLocalId(b, &second));
	EXPECT(first != second);
	OK(cuGraphNodeGetToolsId(a, &tool));
	OK(cuGraphNodeGetToolsId(b, &other_tool));
	EXPECT(tool != other_tool);
	OK(cuGraphNodeGetContainingGraph(b, &found));
	EXPECT(found == g);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetId(g, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecGetId((CUgraphExec)g, &first));
	OK(cuGraphDestroyNode(b));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetLocalId(b, &first));
}

static void expect_text(const char *path, const char *text, bool there)
{
	static char all[1 << 16];
	FILE *f = fopen(path, "r");

	EXPECT(f);
	all[fread(all, 1, sizeof(all) - 1, f)] = '\0';
	fclose(f);
	if (!strstr(all, text) == there)
		FAIL("%s: %s in\n%s", there ? "missing" : "unexpected", text, all);
}

/* An operation in memory, memory that is allocated and its free, one behind the other. */
static void add_memory(CUgraph g)
{
	CUstreamBatchMemOpParams write = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch = { .ctx = context, .count = 1, .paramArray = &write };
	CUDA_MEM_ALLOC_NODE_PARAMS memory = { .bytesize = 96 };
	CUgraphNode a, b, c;

	write.writeValue.address = word;
	write.writeValue.value = 0xabc;
	memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuGraphAddBatchMemOpNode(&a, g, NULL, 0, &batch));
	OK(cuGraphAddMemAllocNode(&b, g, &a, 1, &memory));
	OK(cuGraphAddMemFreeNode(&c, g, &b, 1, memory.dptr));
}

static void picture(void)
{
	char path[] = "/tmp/graph-XXXXXX", text[64];
	CUgraphNode a, b, child;
	unsigned id, from, to;
	CUgraph g, h, inner;

	begin();
	close(mkstemp(path));
	OK(cuGraphCreate(&h, 0));
	fill_node(h, NULL, 0, 2, 1);
	OK(cuGraphCreate(&g, 0));
	a = add_node(g, NULL, 0, 0, 1);
	b = copy_node(g, &a, 1, 1, 0);
	OK(cuGraphAddChildGraphNode(&child, g, &b, 1, h));
	add_memory(g);
	OK(cuGraphDebugDotPrint(g, path, 0));
	OK(cuGraphGetId(g, &id));
	OK(cuGraphNodeGetLocalId(a, &from));
	OK(cuGraphNodeGetLocalId(b, &to));
	snprintf(text, sizeof(text), "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";", id, from, id, to);
	expect_text(path, "digraph dot {", true);
	expect_text(path, text, true);
	expect_text(path, "KERNEL\\nadd_to", true);
	expect_text(path, "MEMCPY\\nDtoD", true);
	expect_text(path, "block 1,1,1", false);
	expect_text(path, "BATCH_MEM_OP", true);
	expect_text(path, "MEM_FREE", true);
	expect_text(path, "96 bytes", false);
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	OK(cuGraphGetId(inner, &id));
	snprintf(text, sizeof(text), "subgraph cluster_%u {", id);
	expect_text(path, text, true);
	OK(cuGraphDebugDotPrint(g, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	expect_text(path, "block 1,1,1", true);
	expect_text(path, "96 bytes", true);
	expect_text(path, "operation 2 0x", true);
	expect_text(path, " 0xabc", true);
	expect_text(path, " = 1\\n1 x 1 of 4 bytes", true);
	EXPECT_ERROR(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(g, "/nowhere/at/all", 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDebugDotPrint(g, NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDebugDotPrint(g, path, 1u << 30));
	OK(cuGraphDestroy(g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDebugDotPrint(g, path, 0));
	unlink(path);
}

/* What an event was is not known any more; the node is in the picture all the same, and what comes after it. */
static void picture_without(void)
{
	char path[] = "/tmp/graph-XXXXXX";
	CUgraphNode node;
	CUevent e;
	CUgraph g;

	begin();
	close(mkstemp(path));
	e = event();
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEventRecordNode(&node, g, NULL, 0, e));
	fill_node(g, &node, 1, 0, 1);
	OK(cuEventDestroy(e));
	OK(cuGraphDebugDotPrint(g, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	expect_text(path, "EVENT_RECORD", true);
	expect_text(path, "MEMSET", true);
	unlink(path);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "by_type", by_type },
		{ "any_type", any_type },
		{ "contexts_of_kernels", contexts_of_kernels },
		{ "captured_nodes", captured_nodes },
		{ "children", children },
		{ "exec_children", exec_children },
		{ "kernel_attributes", attributes },
		{ "numbers", numbers },
		{ "picture", picture },
		{ "picture_without", picture_without },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
