/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that wait for values in memory, write values and reduce them: added, captured, read, changed, and left waiting. */
#include "graphs.h"

#include <unistd.h>

static CUstreamBatchMemOpParams operation(CUstreamBatchMemOpType kind, int at, uint64_t what, unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .operation = kind };

	p.waitValue.address = word + 4 * at;
	p.waitValue.value64 = what;
	p.waitValue.flags = flags;
	return p;
}

static CUstreamBatchMemOpParams write_32(int at, uint64_t what)
{
	return operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, at, what, 0);
}

static CUstreamBatchMemOpParams wait_32(int at, uint64_t what)
{
	return operation(CU_STREAM_MEM_OP_WAIT_VALUE_32, at, what, CU_STREAM_WAIT_VALUE_GEQ);
}

static CUstreamBatchMemOpParams adding_to(int at, uint64_t what)
{
	CUstreamBatchMemOpParams p = { .operation = CU_STREAM_MEM_OP_ATOMIC_REDUCTION };

	p.atomicReduction.reductionOp = CU_STREAM_ATOMIC_REDUCTION_OP_ADD;
	p.atomicReduction.dataType = CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32;
	p.atomicReduction.address = word + 4 * at;
	p.atomicReduction.value = what;
	return p;
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS batch(CUstreamBatchMemOpParams *list, unsigned int count)
{
	return (CUDA_BATCH_MEM_OP_NODE_PARAMS){ .ctx = context, .count = count, .paramArray = list };
}

static CUgraphNode memory_node(CUgraph g, const CUgraphNode *deps, size_t n, CUstreamBatchMemOpParams *list, unsigned int count)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = batch(list, count);
	CUgraphNode node;

	OK(cuGraphAddBatchMemOpNode(&node, g, deps, n, &p));
	return node;
}

static CUgraph new_graph(void)
{
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	return g;
}

static void run_graph(CUgraphExec e)
{
	OK(cuGraphLaunch(e, 0));
	OK(cuCtxSynchronize());
}

/* In the order of the list, behind what comes before; the list is copied. */
static void operations_in_a_graph(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = {
		write_32(1, 10), adding_to(1, 5), adding_to(0, 1),
		operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, 2, 1ull << 32 | 3, 0),
		{ .memoryBarrier = { .operation = CU_STREAM_MEM_OP_BARRIER, .flags = CU_STREAM_MEMORY_BARRIER_TYPE_GPU } },
	};
	CUgraph g = new_graph();
	CUgraphNode fill = fill_node(g, NULL, 0, 0, 7), node = memory_node(g, &fill, 1, list, 5), first = node;
	CUgraphNodeType type;
	CUgraphExec e;

	memset(list, 0, sizeof(list));
	add_node(g, &first, 1, 1, 100);
	OK(cuGraphNodeGetType(node, &type));
	EXPECT(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	e = instantiate(g);
	run_graph(e);
	EXPECT(value(0) == 8);
	EXPECT(value(1) == 145);
	EXPECT(value(2) == 3);
	EXPECT(value(3) == 1);
	run_graph(e);
	EXPECT(value(1) == 145);
}

static void expect_operations(CUgraphNode node, const CUstreamBatchMemOpParams *list, unsigned int count)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS p, again;

	OK(cuGraphBatchMemOpNodeGetParams(node, &p));
	OK(cuGraphBatchMemOpNodeGetParams(node, &again));
	EXPECT(p.paramArray == again.paramArray); /* the node's */
	EXPECT(p.count == count);
	EXPECT(p.flags == 0);
	EXPECT(p.ctx == context);
	for (unsigned int i = 0; i < count; i++) {
		const CUstreamBatchMemOpParams *a = &p.paramArray[i], *b = &list[i];

		EXPECT(a->operation == b->operation);
		if (a->operation == CU_STREAM_MEM_OP_ATOMIC_REDUCTION) {
			EXPECT(a->atomicReduction.reductionOp == b->atomicReduction.reductionOp);
			EXPECT(a->atomicReduction.dataType == b->atomicReduction.dataType);
			EXPECT(a->atomicReduction.address == b->atomicReduction.address);
			EXPECT(a->atomicReduction.value == b->atomicReduction.value);
		} else if (a->operation == CU_STREAM_MEM_OP_BARRIER) {
			EXPECT(a->memoryBarrier.flags == b->memoryBarrier.flags);
		} else {
			EXPECT(a->waitValue.address == b->waitValue.address);
			EXPECT(a->waitValue.value64 == b->waitValue.value64);
			EXPECT(a->waitValue.flags == b->waitValue.flags);
		}
	}
}

/* Of clones and child graphs, too, which have lists of their own. */
static void operations_are_read(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = {
		write_32(1, 10), adding_to(2, 5), wait_32(3, 0),
		operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, 4, 1ull << 40, CU_STREAM_WAIT_VALUE_NOR),
		{ .memoryBarrier = { .operation = CU_STREAM_MEM_OP_BARRIER, .flags = CU_STREAM_MEMORY_BARRIER_TYPE_SYS } },
	}, other[255];
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = batch(other, 255);
	CUgraph g = new_graph(), clone, outer = new_graph(), inner;
	CUgraphNode node = memory_node(g, NULL, 0, list, 5), copy, child, fill = fill_node(g, NULL, 0, 9, 1);
	size_t one = 1;

	for (int i = 0; i < 255; i++)
		other[i] = write_32(i, (uint64_t)i);
	expect_operations(node, list, 5);
	OK(cuGraphClone(&clone, g));
	OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, g));
	OK(cuGraphBatchMemOpNodeSetParams(node, &p));
	expect_operations(node, other, 255);
	OK(cuGraphNodeFindInClone(&copy, node, clone));
	expect_operations(copy, list, 5);
	OK(cuGraphChildGraphNodeGetGraph(child, &inner));
	OK(cuGraphGetNodes(inner, &copy, &one));
	expect_operations(copy, list, 5);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeGetParams(fill, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeGetParams(node, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(node, &(CUDA_MEMSET_NODE_PARAMS){ 0 }));
	OK(cuGraphDestroy(g));
	run_graph(instantiate(new_graph()));
}

/* The wait of one launch is met by a write of another stream; what is behind it comes after that. */
static void a_graph_waits_for_memory(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = { wait_32(0, 3), write_32(1, 50) };
	CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
	CUgraph g = new_graph();
	CUgraphNode node = memory_node(g, NULL, 0, list, 2);
	unsigned found;
	CUgraphExec e;

	add_node(g, &node, 1, 1, 6);
	e = instantiate(g);
	OK(cuGraphLaunch(e, first));
	usleep(3000);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
	OK(cuMemcpyDtoHAsync(&found, word + 4, 4, second));
	OK(cuStreamSynchronize(second));
	EXPECT(found == 0);
	OK(cuStreamWriteValue32(second, word, 3, 0));
	OK(cuStreamSynchronize(first));
	EXPECT(value(1) == 156);
}

/* Documented: addresses, values and what a wait is for; nothing else. A graph's node itself may become any. */
static void operations_of_an_executable_graph(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = { wait_32(0, 0), write_32(1, 5), adding_to(2, 1) }, bad[4];
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = batch(bad, 3);
	CUgraph g = new_graph(), h = new_graph();
	CUgraphNode node = memory_node(g, NULL, 0, list, 3), other;
	CUgraphExecUpdateResultInfo info;
	CUgraphExec e = instantiate(g);

	memcpy(bad, list, sizeof(list));
	bad[0] = operation(CU_STREAM_MEM_OP_WAIT_VALUE_32, 5, 0, CU_STREAM_WAIT_VALUE_EQ);
	bad[1] = write_32(6, 9);
	OK(cuGraphExecBatchMemOpNodeSetParams(e, node, &p));
	run_graph(e);
	EXPECT(value(1) == 0);
	EXPECT(value(6) == 9);
	EXPECT(value(2) == 1);
	expect_operations(node, list, 3);
	bad[2] = adding_to(2, 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(e, node, &p));
	bad[2] = write_32(2, 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(e, node, &p));
	p.count = 2;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(e, node, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphExecBatchMemOpNodeSetParams(NULL, node, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(e, node, 0));
	/* as a whole, by the same rule */
	other = memory_node(h, NULL, 0, list, 2);
	EXPECT_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, h, &info));
	OK(cuGraphDestroyNode(other));
	list[1] = write_32(7, 8);
	memory_node(h, NULL, 0, list, 3);
	OK(cuGraphExecUpdate(e, h, &info));
	run_graph(e);
	EXPECT(value(7) == 8);
	EXPECT(value(2) == 2);
	OK(cuGraphBatchMemOpNodeSetParams(node, &p));
	expect_operations(node, bad, 2);
}

static void operations_by_type(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = { write_32(1, 5), write_32(2, 6) };
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP }, q;
	CUgraph g = new_graph();
	CUgraphNode node, again;
	CUgraphExec e;

	p.memOp.count = 2; /* no context: the current one */
	p.memOp.paramArray = list;
	OK(cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	expect_operations(node, list, 2);
	OK(cuGraphNodeGetParams(node, &q));
	EXPECT(q.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	EXPECT(q.memOp.count == 2 && q.memOp.ctx == context && q.memOp.flags == 0);
	OK(cuGraphAddNode(&again, g, &node, NULL, 1, &q));
	expect_operations(again, list, 2);
	list[0] = write_32(3, 7);
	OK(cuGraphNodeSetParams(again, &p));
	e = instantiate(g);
	list[1] = write_32(4, 8);
	OK(cuGraphExecNodeSetParams(e, node, &p));
	run_graph(e);
	EXPECT(value(1) == 0);
	EXPECT(value(2) == 6);
	EXPECT(value(3) == 7);
	EXPECT(value(4) == 8);
}

static void captured_operations(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = { write_32(3, 1), adding_to(3, 8) }, wait = wait_32(0, 2), one = write_32(1, 4);
	CUstream s = stream(CU_STREAM_NON_BLOCKING), other = stream(CU_STREAM_NON_BLOCKING);
	CUgraphNode nodes[3], from[3], to[3];
	CUgraphEdgeData edges[3];
	size_t count = 3, n_edges = 3;
	CUgraphNodeType type;
	CUgraphExec e;
	CUgraph g;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamWaitValue32(s, word, 2, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamWriteValue32(s, word + 4, 4, 0));
	OK(cuStreamBatchMemOp(s, 2, list, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(s, 0, list, 0));
	g = end(s);
	EXPECT(value(1) == 0); /* nothing has run */
	OK(cuGraphGetNodes(g, nodes, &count));
	EXPECT(count == 3);
	OK(cuGraphGetEdges(g, from, to, edges, &n_edges));
	EXPECT(n_edges == 2);
	for (int i = 0; i < 3; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		EXPECT(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	}
	expect_operations(nodes[0], &wait, 1);
	expect_operations(nodes[1], &one, 1);
	expect_operations(nodes[2], list, 2);
	e = instantiate(g);
	OK(cuGraphLaunch(e, s));
	usleep(3000);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	OK(cuStreamWriteValue32(other, word, 2, 0));
	OK(cuStreamSynchronize(s));
	EXPECT(value(1) == 4);
	EXPECT(value(3) == 9);
}

static void expect_refused(CUgraph g, CUgraphNode node, CUresult error, CUDA_BATCH_MEM_OP_NODE_PARAMS p)
{
	CUgraphNode added = NULL;
	size_t before, after;

	OK(cuGraphGetNodes(g, NULL, &before));
	EXPECT_ERROR(error, cuGraphAddBatchMemOpNode(&added, g, NULL, 0, &p));
	EXPECT_ERROR(error, cuGraphBatchMemOpNodeSetParams(node, &p));
	OK(cuGraphGetNodes(g, NULL, &after));
	EXPECT(before == after);
}

static void wrong_operations(void)
{
	begin();
	CUstreamBatchMemOpParams good = write_32(0, 1), list[256], wrong;
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = batch(&good, 1);
	CUgraph g = new_graph();
	CUgraphNode node = memory_node(g, NULL, 0, &good, 1), fill = fill_node(g, NULL, 0, 9, 1), added;

	for (int i = 0; i < 256; i++)
		list[i] = good;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(list, 256));
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(list, 0));
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(NULL, 1));
	p.flags = 1;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, p);
	p.flags = 0;
	p.ctx = (CUcontext)(uintptr_t)8;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, p);
	wrong = write_32(1024, 1); /* behind the memory */
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(&wrong, 1));
	list[254] = wrong;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(list, 255));
	wrong = good;
	wrong.writeValue.address += 2;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(&wrong, 1));
	wrong.operation = 7;
	expect_refused(g, node, CUDA_ERROR_INVALID_VALUE, batch(&wrong, 1));
	wrong = wait_32(0, 0);
	wrong.waitValue.flags = CU_STREAM_WAIT_VALUE_FLUSH;
	expect_refused(g, node, CUDA_ERROR_NOT_SUPPORTED, batch(&wrong, 1));
	expect_operations(node, &good, 1);
	p = batch(&good, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddBatchMemOpNode(NULL, g, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddBatchMemOpNode(&added, g, NULL, 0, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddBatchMemOpNode(&added, NULL, NULL, 0, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeSetParams(fill, &p));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphBatchMemOpNodeSetParams(node, NULL));
}

/* Nothing of it holds up what else there is, nor the end of its context. */
static void a_graph_waits_for_ever(void)
{
	begin();
	CUstreamBatchMemOpParams list[] = { wait_32(0, 1) };
	CUstream first = stream(CU_STREAM_NON_BLOCKING), second = stream(CU_STREAM_NON_BLOCKING);
	CUgraph g = new_graph();
	CUgraphNode node = memory_node(g, NULL, 0, list, 1);
	CUdeviceptr other;
	CUgraphExec e;

	add_node(g, &node, 1, 1, 6);
	e = instantiate(g);
	OK(cuGraphLaunch(e, first));
	OK(cuMemsetD32Async(word + 16, 5, 1, second));
	OK(cuStreamSynchronize(second));
	OK(cuGraphExecDestroy(e));
	OK(cuGraphDestroy(g));
	OK(cuStreamDestroy(first));
	OK(cuCtxDestroy(context));
	new_context();
	OK(cuMemAlloc(&other, 64));
	OK(cuMemsetD32(other, 5, 1));
	OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "operations_in_a_graph", operations_in_a_graph },
		{ "operations_are_read", operations_are_read },
		{ "a_graph_waits_for_memory", a_graph_waits_for_memory },
		{ "operations_of_an_executable_graph", operations_of_an_executable_graph },
		{ "operations_by_type", operations_by_type },
		{ "captured_operations", captured_operations },
		{ "wrong_operations", wrong_operations },
		{ "a_graph_waits_for_ever", a_graph_waits_for_ever },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
