/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes do, and how a program adds, reads and changes them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph_inside.h"

static CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct graph_node *made)
{
	CUlaunchConfig c = { .sharedMemBytes = p ? p->sharedMemBytes : 0 };

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	c.gridDimX = p->gridDimX, c.gridDimY = p->gridDimY, c.gridDimZ = p->gridDimZ;
	c.blockDimX = p->blockDimX, c.blockDimY = p->blockDimY, c.blockDimZ = p->blockDimZ;
	return make_launch(p->func ? p->func : (CUfunction)p->kern, &c, (struct cuda_launch_options){ 0 }, p->kernelParams, p->extra, made);
}

static CUresult check_side(const struct cuda_copy *shape, const struct cuda_side *side)
{
	struct allocation a;
	size_t bytes;
	CUresult r = cuda_copy_extent(shape, side, &bytes);

	if (r != CUDA_SUCCESS || side->type != CU_MEMORYTYPE_DEVICE)
		return r;
	return vm_contains(side->base, bytes, &a) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_copy(const CUDA_MEMCPY3D *p, struct graph_node *made)
{
	struct cuda_copy shape;
	CUresult r = cuda_read_copy_3d(p, &shape);

	if (r == CUDA_SUCCESS && cuda_copy_is_empty(&shape))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_side(&shape, &shape.to);
	if (r == CUDA_SUCCESS)
		r = check_side(&shape, &shape.from);
	if (r != CUDA_SUCCESS)
		return r;
	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_MEMCPY };
	made->copy = *p;
	return CUDA_SUCCESS;
}

static CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS *p, struct graph_node *made)
{
	struct allocation a;
	size_t extent;

	if (!p || !p->width || !p->height || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	if (cuda_rows_extent(p->width, p->elementSize, p->height, p->pitch, &extent) != CUDA_SUCCESS ||
	    p->dst % p->elementSize || !vm_contains(p->dst, extent, &a))
		return CUDA_ERROR_INVALID_VALUE;
	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_MEMSET };
	made->memset = *p;
	return CUDA_SUCCESS;
}

static CUresult make_host(const CUDA_HOST_NODE_PARAMS *p, struct graph_node *made)
{
	if (!p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_HOST };
	made->host = *p;
	return CUDA_SUCCESS;
}

static CUresult make_event(CUgraphNodeType type, CUevent event, struct graph_node *made)
{
	bool known;

	drv_lock();
	known = handle_is(event, HANDLE_EVENT);
	drv_unlock();
	*made = (struct graph_node){ .type = type };
	made->event = event;
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_memory(const struct context *ctx, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct graph_node *made)
{
	CUcontext context = p && p->ctx ? p->ctx : (CUcontext)ctx;
	bool known;
	CUresult r;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	known = handle_is(context, HANDLE_CONTEXT);
	drv_unlock();
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	r = memory_make(p->paramArray, p->count, p->flags, false, &made->memory);
	made->memory.context = context;
	return r;
}

/* ---- adding */

/* Puts into the graph what `r` says could be made. */
static CUresult add(CUresult r, CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t n,
		    struct graph_node *made)
{
	struct graph *g;

	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	r = out ? graph_get(handle, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = graph_check_nodes(g, deps, n);
	if (r == CUDA_SUCCESS)
		r = graph_may_have(g, made);
	if (r != CUDA_SUCCESS) {
		node_clear(made);
		return r;
	}
	*out = (CUgraphNode)graph_add(g, made, (struct graph_node *const *)deps, n);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				 const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	return add(make_kernel(params, &made), out, g, deps, n, &made);
}

/* The first version lacks the two last fields. */
static CUDA_KERNEL_NODE_PARAMS_v2 longer(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params = { .func = NULL };

	memcpy(&params, p, sizeof(*p));
	return params;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS_v2 p;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p = longer(params);
	return cuGraphAddKernelNode_v2(out, g, deps, n, &p);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_MEMCPY3D *params, CUcontext context)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	(void)context;
	return add(make_copy(params, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			      const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	(void)context;
	return add(make_memset(params, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
			    const CUDA_HOST_NODE_PARAMS *params)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	return add(make_host(params, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	CONTEXT_ENTER(ctx);
	return add(CUDA_SUCCESS, out, g, deps, n, &made);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
				  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	return add(make_memory(ctx, params, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUevent event)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	return add(make_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUevent event)
{
	struct graph_node made;

	CONTEXT_ENTER(ctx);
	return add(make_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &made), out, g, deps, n, &made);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraph child)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	struct graph *from;
	CUresult r;

	CONTEXT_ENTER(ctx);
	drv_lock();
	r = graph_get(child, &from);
	if (r == CUDA_SUCCESS && ((CUgraph)from == g || from->blocks.count || graph_decides(from)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		made.child = graph_copy(from, false);
		if (made.child)
			graph_rename(made.child);
		r = made.child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	drv_unlock();
	return add(r, out, g, deps, n, &made);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *out)
{
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = out ? node_get(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && node->type != CU_GRAPH_NODE_TYPE_GRAPH)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = (CUgraph)node->child;
	return r;
}

/* ---- reading and changing */

static CUresult get(CUgraphNode handle, CUgraphNodeType type, const void *out, struct graph_node **node)
{
	CUresult r = out ? node_get(handle, node) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS && (*node)->type != type ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *out)
{
	struct graph_node *n;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = get(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, &n);
	if (r != CUDA_SUCCESS)
		return r;
	*out = (CUDA_KERNEL_NODE_PARAMS_v2){ .func = n->kernel.function, .sharedMemBytes = n->kernel.shared,
					     .kernelParams = n->kernel.params };
	out->gridDimX = n->kernel.grid[0], out->gridDimY = n->kernel.grid[1], out->gridDimZ = n->kernel.grid[2];
	out->blockDimX = n->kernel.block[0], out->blockDimY = n->kernel.block[1], out->blockDimZ = n->kernel.block[2];
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params;
	CUresult r = out ? cuGraphKernelNodeGetParams_v2(handle, &params) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		memcpy(out, &params, sizeof(*out));
	return r;
}

#define NODE_GETTER(name, node_type, out_type, value)                     \
	CUresult name(CUgraphNode handle, out_type *out)                  \
	{                                                                 \
		struct graph_node *n;                                     \
		CUresult r;                                               \
                                                                          \
		DRIVER_CHECK();                                           \
		DRV_LOCKED();                                             \
		r = get(handle, node_type, out, &n);                      \
		if (r == CUDA_SUCCESS)                                    \
			*out = value;                                     \
		return r;                                                 \
	}

NODE_GETTER(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, n->copy)
NODE_GETTER(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, n->memset)
NODE_GETTER(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, n->host)
NODE_GETTER(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, n->event)
NODE_GETTER(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, n->event)
NODE_GETTER(cuGraphBatchMemOpNodeGetParams, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
	    ((CUDA_BATCH_MEM_OP_NODE_PARAMS){ n->memory.context, n->memory.count, n->memory.list, 0 }))

/* Attributes are not what a kernel is launched with: they stay. */
static void replace_kernel(struct graph_kernel *k, const struct graph_kernel *made)
{
	struct graph_kernel had = *k;

	*k = *made;
	k->options.cooperative = had.options.cooperative;
	k->tuning = had.tuning;
	k->scheduling = had.scheduling;
	k->carveout = had.carveout;
}

/* What a node does from now on; a kernel node keeps its function's context. */
static void replace(struct graph_node *node, const struct graph_node *made)
{
	node_clear(node);
	switch (made->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		replace_kernel(&node->kernel, &made->kernel);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		node->copy = made->copy;
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		node->memset = made->memset;
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		node->host = made->host;
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		node->memory = made->memory;
		break;
	default:
		node->event = made->event;
	}
}

/* The node itself, or its likeness in an executable graph. */
static CUresult set(CUresult r, CUgraphExec exec, CUgraphNode handle, struct graph_node *made)
{
	struct graph_node *node;

	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	r = exec ? exec_node(exec, handle, &node) : node_get(handle, &node);
	if (r == CUDA_SUCCESS && node->type != made->type)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && exec && made->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP &&
	    !memory_may_become(&node->memory, &made->memory))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = graph_may_have(node->graph, made);
	if (r == CUDA_SUCCESS)
		replace(node, made);
	else
		node_clear(made);
	return r;
}

#define NODE_SETTER(name, params, r, exec)           \
	CUresult name params                         \
	{                                            \
		struct graph_node made;              \
                                                     \
		CONTEXT_ENTER(ctx);                  \
		return set(r, exec, node, &made);    \
	}

/* No executable graph is no graph's node. */
#define EXEC_SETTER(name, params, r)                                 \
	CUresult name params                                         \
	{                                                            \
		struct graph_node made;                              \
                                                                     \
		CONTEXT_ENTER(ctx);                                  \
		if (!exec)                                           \
			return CUDA_ERROR_INVALID_VALUE;             \
		return set(r, exec, node, &made);                    \
	}

NODE_SETTER(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *p),
	    make_kernel(p, &made), NULL)
NODE_SETTER(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *p), make_copy(p, &made), NULL)
NODE_SETTER(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p), make_memset(p, &made), NULL)
NODE_SETTER(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p), make_host(p, &made), NULL)
NODE_SETTER(cuGraphBatchMemOpNodeSetParams, (CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p),
	    make_memory(ctx, p, &made), NULL)
NODE_SETTER(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent e),
	    make_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, e, &made), NULL)
NODE_SETTER(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent e),
	    make_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, e, &made), NULL)
EXEC_SETTER(cuGraphExecKernelNodeSetParams_v2,
	    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *p), make_kernel(p, &made))
EXEC_SETTER(cuGraphExecMemcpyNodeSetParams,
	    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, __attribute__((unused)) CUcontext context),
	    make_copy(p, &made))
EXEC_SETTER(cuGraphExecMemsetNodeSetParams,
	    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p,
	     __attribute__((unused)) CUcontext context),
	    make_memset(p, &made))
EXEC_SETTER(cuGraphExecHostNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p),
	    make_host(p, &made))
EXEC_SETTER(cuGraphExecBatchMemOpNodeSetParams,
	    (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p), make_memory(ctx, p, &made))
EXEC_SETTER(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent e),
	    make_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, e, &made))
EXEC_SETTER(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent e),
	    make_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, e, &made))

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	params = longer(p);
	return cuGraphKernelNodeSetParams_v2(node, &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 params;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	params = longer(p);
	return cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
}
