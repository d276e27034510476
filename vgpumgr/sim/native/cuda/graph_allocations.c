/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that allocate memory and free it. It has its bytes from its node on, until no graph and no program has it: a launch
 * does nothing at them.
 */
#include <stdlib.h>

#include "captures.h"

void graph_memory_give(void)
{
	struct graph_block *b, *next;

	drv_lock();
	b = graph_memory_ended;
	graph_memory_ended = NULL;
	drv_unlock();
	for (; b; b = next) {
		next = b->next;
		if (!b->lost)
			memory_give(b->address); /* a launch may still use it: that is waited for */
		free(b);
	}
}

CUresult cuGraphDestroy(CUgraph handle)
{
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	drv_lock();
	r = graph_get(handle, &g);
	if (r == CUDA_SUCCESS && g->parent)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && graph_is_captured(g))
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		graph_free(g);
	drv_unlock();
	graph_memory_give();
	return r;
}

static CUresult take(struct context *ctx, size_t size, struct graph_block *what)
{
	CUdeviceptr address;
	CUresult r = memory_allocate(ctx, size, &address);

	*what = (struct graph_block){ .context = ctx->id, .bytes = size, .device = ctx->dev->ordinal };
	if (r == CUDA_SUCCESS)
		what->address = address;
	return r;
}

/* Child graphs may have none, as documented. */
static CUresult put(CUgraph handle, const CUgraphNode *deps, size_t n, CUgraphNodeType type, struct graph **g,
		    struct graph_node **node)
{
	struct graph_node made = { .type = type };
	CUresult r = graph_get(handle, g);

	if (r == CUDA_SUCCESS)
		r = (*g)->parent ? CUDA_ERROR_INVALID_VALUE : graph_check_nodes(*g, deps, n);
	if (r != CUDA_SUCCESS)
		return r;
	*node = graph_add(*g, &made, (struct graph_node *const *)deps, n);
	return *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct graph_node *node;
	struct graph_block what;
	struct graph *g;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = out ? cuda_check_graph_allocation(params, ctx->dev->ordinal, drv.n_devices) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = take(ctx, params->bytesize, &what);
	if (r != CUDA_SUCCESS)
		return r;
	drv_lock();
	r = put(handle, deps, n, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &g, &node);
	if (r == CUDA_SUCCESS)
		r = graph_blocks_allocate(&g->blocks, g->number, node->number, &what);
	drv_unlock();
	if (r != CUDA_SUCCESS) {
		memory_give(what.address);
		return r;
	}
	*out = (CUgraphNode)node;
	params->dptr = what.address;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t n, CUdeviceptr address)
{
	struct graph_node *node;
	struct graph *g;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = out ? graph_blocks_may_free(address) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = put(handle, deps, n, CU_GRAPH_NODE_TYPE_MEM_FREE, &g, &node);
	if (r == CUDA_SUCCESS)
		r = graph_blocks_free(&g->blocks, g->number, node->number, address);
	if (r == CUDA_SUCCESS)
		*out = (CUgraphNode)node;
	return r;
}

/* ---- captured */

static CUresult capture_node(struct stream *s, CUgraphNodeType type, struct graph_node **node)
{
	struct graph_node made = { .type = type };
	CUresult r = capture_add(s, &made);

	*node = r == CUDA_SUCCESS ? s->tips[0] : NULL;
	return r;
}

static CUresult capture_block(struct context *ctx, CUstream handle, const struct graph_block *what)
{
	struct graph_node *node;
	struct stream *s;
	CUresult r;

	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS && !s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		r = capture_node(s, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node);
	return r == CUDA_SUCCESS ? graph_blocks_allocate(&node->graph->blocks, node->graph->number, node->number, what) : r;
}

CUresult capture_allocation(CUstream stream, size_t size, CUdeviceptr *out)
{
	struct graph_block what;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = take(ctx, size, &what);
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_block(ctx, stream, &what);
	if (r == CUDA_SUCCESS)
		*out = what.address;
	else
		memory_give(what.address);
	return r;
}

CUresult capture_free(struct stream *s, CUdeviceptr address)
{
	struct graph_node *node;
	CUresult r = graph_blocks_may_free(address);

	if (r == CUDA_SUCCESS)
		r = capture_node(s, CU_GRAPH_NODE_TYPE_MEM_FREE, &node);
	return r == CUDA_SUCCESS ? graph_blocks_free(&node->graph->blocks, node->graph->number, node->number, address) : r;
}

/* ---- asked */

static CUresult find(CUgraphNode handle, bool frees, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct graph_node *n;
	bool found;
	CUresult r = node_get(handle, &n);

	if (r != CUDA_SUCCESS)
		return r;
	return graph_blocks_find(&n->graph->blocks, n->number, &found, params) && found == frees ? CUDA_SUCCESS :
												  CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = out ? find(handle, false, &params) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = params;
	return r;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = out ? find(handle, true, &params) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*out = params.dptr;
	return r;
}

/* Nothing is kept that no graph has. */
CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	DRIVER_CHECK();
	return device_find(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	DRIVER_CHECK();
	return device_find(device) ? graph_memory_attribute(device, attribute, false, value) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	DRIVER_CHECK();
	return device_find(device) ? graph_memory_attribute(device, attribute, true, value) : CUDA_ERROR_INVALID_DEVICE;
}
