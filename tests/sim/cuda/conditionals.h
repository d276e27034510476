/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs with conditional nodes. */
#include "graphs.h"

static CUfunction decide __attribute__((unused));
static CUfunction count_down __attribute__((unused));

static inline void begin_deciding(void)
{
	CUmodule module;

	begin();
	module = load_kernels();
	decide = find_kernel(module, "decide");
	count_down = find_kernel(module, "count_down");
}

static inline CUgraph new_graph(void)
{
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	return g;
}

static inline CUgraphConditionalHandle new_handle(CUgraph g, unsigned int initial, unsigned int flags)
{
	CUgraphConditionalHandle h = 0;

	OK(cuGraphConditionalHandleCreate(&h, g, context, initial, flags));
	EXPECT(h);
	return h;
}

static inline CUgraphNodeParams conditional(CUgraphConditionalHandle h, CUgraphConditionalNodeType type, unsigned int size)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };

	p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ .handle = h, .type = type, .size = size, .ctx = context };
	return p;
}

static inline CUgraphNode conditional_node(CUgraph g, const CUgraphNode *deps, size_t n, CUgraphConditionalHandle h,
				    CUgraphConditionalNodeType type, unsigned int size, CUgraph *bodies)
{
	CUgraphNodeParams p = conditional(h, type, size);
	CUgraphNode node;

	OK(cuGraphAddNode(&node, g, deps, NULL, n, &p));
	memcpy(bodies, p.conditional.phGraph_out, size * sizeof(CUgraph));
	return node;
}

static inline CUgraphNode kernel_node(CUgraph g, const CUgraphNode *deps, size_t n, CUfunction f, void **params)
{
	CUDA_KERNEL_NODE_PARAMS k = { .func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				      .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, deps, n, &k));
	return node;
}

static inline CUgraphNode deciding_node(CUgraph g, const CUgraphNode *deps, size_t n, CUgraphConditionalHandle h, unsigned int value)
{
	return kernel_node(g, deps, n, decide, (void *[]){ &h, &value });
}

static inline CUgraphNode counting_node(CUgraph g, const CUgraphNode *deps, size_t n, CUgraphConditionalHandle h, int at)
{
	CUdeviceptr p = word + 4 * at;

	return kernel_node(g, deps, n, count_down, (void *[]){ &h, &p });
}

/* What a word is after so many turns of add_to, which tells how often it was run, and with what. */
static inline unsigned int turns(unsigned int from, unsigned int times, unsigned int much)
{
	while (times--)
		from = 3 * from + much;
	return from;
}

static inline void run_graph(CUgraphExec e)
{
	OK(cuGraphLaunch(e, 0));
	OK(cuCtxSynchronize());
}
