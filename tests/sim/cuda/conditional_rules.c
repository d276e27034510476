/* SPDX-License-Identifier: Apache-2.0 */
/* What conditional nodes, their handles and their bodies are refused. */
#include "conditionals.h"

static void wrong_handles(void)
{
	begin_deciding();
	CUgraph g = new_graph(), other = new_graph(), bodies[3];
	CUgraphConditionalHandle h = new_handle(g, 0, 0), lost;
	static const struct { CUgraphConditionalNodeType type; unsigned int size; } wrong[] = {
		{ CU_GRAPH_COND_TYPE_IF, 0 }, { CU_GRAPH_COND_TYPE_IF, 3 }, { CU_GRAPH_COND_TYPE_WHILE, 0 },
		{ CU_GRAPH_COND_TYPE_WHILE, 2 }, { CU_GRAPH_COND_TYPE_SWITCH, 0 }, { (CUgraphConditionalNodeType)7, 1 },
	};
	CUDA_GRAPH_INSTANTIATE_PARAMS made = { .flags = 0 };
	CUgraphNode node;
	CUgraphNodeParams p;
	CUgraphExec e;

	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&lost, g, context, 0, 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&lost, (CUgraph)&g, context, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(NULL, g, context, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&lost, g, (CUcontext)&g, 0, 0));
	/* no node asks it */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&e, g, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&e, g, &made));
	EXPECT(made.result_out == (getenv("VGPUMGR_SIM") ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED :
							   CUDA_GRAPH_INSTANTIATE_ERROR)); /* over a channel */
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		p = conditional(h, wrong[i].type, wrong[i].size);
		EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	}
	p = conditional(h, CU_GRAPH_COND_TYPE_IF, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, other, NULL, NULL, 0, &p)); /* another graph's */
	p = conditional(h + 16, CU_GRAPH_COND_TYPE_IF, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	p = conditional(h, CU_GRAPH_COND_TYPE_IF, 1);
	p.conditional.ctx = (CUcontext)&p;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_SWITCH, 3, bodies);
	p = conditional(h, CU_GRAPH_COND_TYPE_IF, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, g, NULL, NULL, 0, &p)); /* it has a node */
	OK(cuGraphDestroyNode(node));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(bodies[1], NULL, &(size_t){ 0 }));
	node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, bodies);
	OK(cuGraphInstantiate(&e, g, 0));
}

static void what_no_body_has(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body, plain = new_graph(), copy;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode node = conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, &body), lost;
	CUDA_HOST_NODE_PARAMS host = { call, NULL };
	CUDA_MEM_ALLOC_NODE_PARAMS memory = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
					      .bytesize = 64 };
	CUgraphExec e, other;

	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddHostNode(&lost, body, NULL, 0, &host));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddEventRecordNode(&lost, body, NULL, 0, event()));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&lost, body, NULL, 0, &memory));
	OK(cuGraphAddHostNode(&lost, plain, NULL, 0, &host));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&lost, body, NULL, 0, plain));
	/* and what no graph with such a node is */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphClone(&copy, g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&lost, plain, NULL, 0, g));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body));
	add_node(body, NULL, 0, 0, 1);
	e = instantiate(g);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled(e, node, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&other, g, 0));
	for (int i = 0; i < 50; i++) { /* one at a time */
		OK(cuGraphLaunch(e, 0));
		OK(cuGraphExecDestroy(e));
		e = instantiate(g);
	}
	OK(cuCtxSynchronize());
	EXPECT(value(0) == turns(0, 50, 1));
}

/* Nor is captured there, nor what its nodes become; a child graph decides nothing. */
static void what_no_body_becomes(void)
{
	begin_deciding();
	static unsigned int pageable;
	CUgraph g = new_graph(), body, plain = new_graph(), inner, same;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = &pageable, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = word, .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUgraphNodeParams p;
	CUgraphNode node, lost;
	CUdeviceptr memory;
	CUresult r;

	conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
	node = copy_node(body, NULL, 0, 1, 0);
	r = cuGraphMemcpyNodeSetParams(node, &copy); /* over a channel it is refused by name */
	EXPECT(r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_SUPPORTED);
	r = cuGraphAddMemcpyNode(&lost, body, NULL, 0, &copy, context);
	EXPECT(r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_NOT_SUPPORTED);
	OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAllocAsync(&memory, 64, s));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &same));
	OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuLaunchHostFunc(s, call, NULL));
	EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &same));
	g = new_graph();
	add_node(plain, NULL, 0, 0, 1);
	OK(cuGraphAddChildGraphNode(&node, g, NULL, 0, plain));
	OK(cuGraphChildGraphNodeGetGraph(node, &inner));
	p = conditional(new_handle(g, 0, 0), CU_GRAPH_COND_TYPE_IF, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&lost, inner, NULL, NULL, 0, &p));
}

/* All kernels of a body, and all that set its handle, are of the handle's context. */
static void of_one_context(void)
{
	begin_deciding();
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	unsigned int one = 1;
	CUfunction other;
	CUDA_KERNEL_NODE_PARAMS k = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
				      .kernelParams = (void *[]){ &h, &one } };
	CUgraphNode lost;

	conditional_node(g, NULL, 0, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
	new_context();
	k.func = other = find_kernel(load_kernels(), "decide");
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&lost, body, NULL, 0, &k));
	OK(cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, 0, (void *[]){ &h, &one }, NULL));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void as_deep_as_it_goes(void)
{
	begin_deciding();
	CUgraph outer = new_graph(), g = outer;
	CUgraphConditionalHandle h;
	CUgraphNodeParams p;
	CUgraphNode node;

	for (int i = 0; i < 64; i++)
		conditional_node(g, NULL, 0, new_handle(outer, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), CU_GRAPH_COND_TYPE_IF, 1, &g);
	add_node(g, NULL, 0, 0, 1);
	run_graph(instantiate(outer));
	EXPECT(value(0) == 1);
	h = new_handle(g, 1, 0);
	p = conditional(h, CU_GRAPH_COND_TYPE_IF, 1);
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&node, g, NULL, NULL, 0, &p));
	OK(cuGraphDestroy(outer));
}

static void a_handle_that_is_none(void)
{
	begin_deciding();
	CUgraphConditionalHandle h = 12345;
	unsigned int one = 1;

	OK(cuLaunchKernel(decide, 1, 1, 1, 1, 1, 1, 0, 0, (void *[]){ &h, &one }, NULL));
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "wrong_handles", wrong_handles },
		{ "what_no_body_has", what_no_body_has },
		{ "what_no_body_becomes", what_no_body_becomes },
		{ "of_one_context", of_one_context },
		{ "as_deep_as_it_goes", as_deep_as_it_goes },
		{ "a_handle_that_is_none", a_handle_that_is_none },
		{ .name = NULL },
	};

	return run_case(cases, argc, argv);
}
