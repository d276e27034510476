/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes by their type: cuGraphAddNode and its kin, in terms of the calls for each type. Each library that has those calls
 * includes it in one file.
 */
#ifndef VGPUMGR_ANY_NODE_H
#define VGPUMGR_ANY_NODE_H

#include <cuda_rules.h>

/* Conditional nodes, which have no calls of their own: of the library that includes this, with the graphs that a node gets. */
CUresult conditional_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *on, size_t n, CUDA_CONDITIONAL_NODE_PARAMS *params);
CUresult conditional_get(CUgraphNode node, CUDA_CONDITIONAL_NODE_PARAMS *params);

static inline CUresult any_check(const CUgraphNodeParams *p)
{
	return p && !p->reserved0[0] && !p->reserved0[1] && !p->reserved0[2] && !p->reserved2 ? CUDA_SUCCESS :
												  CUDA_ERROR_INVALID_VALUE;
}

static inline CUDA_KERNEL_NODE_PARAMS_v2 any_kernel(const CUgraphNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 k = { .func = p->kernel.func, .sharedMemBytes = p->kernel.sharedMemBytes,
					 .kernelParams = p->kernel.kernelParams, .extra = p->kernel.extra,
					 .kern = p->kernel.kern, .ctx = p->kernel.ctx };

	k.gridDimX = p->kernel.gridDimX, k.gridDimY = p->kernel.gridDimY, k.gridDimZ = p->kernel.gridDimZ;
	k.blockDimX = p->kernel.blockDimX, k.blockDimY = p->kernel.blockDimY, k.blockDimZ = p->kernel.blockDimZ;
	return k;
}

static inline CUDA_MEMSET_NODE_PARAMS any_memset(const CUgraphNodeParams *p)
{
	return (CUDA_MEMSET_NODE_PARAMS){ p->memset.dst, p->memset.pitch, p->memset.value, p->memset.elementSize,
					  p->memset.width, p->memset.height };
}

static inline CUDA_BATCH_MEM_OP_NODE_PARAMS any_memory(const CUgraphNodeParams *p)
{
	return (CUDA_BATCH_MEM_OP_NODE_PARAMS){ p->memOp.ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags };
}

/* CUDA_ERROR_NOT_SUPPORTED: of a type, or with edges, that there is no call for. */
static inline CUresult any_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *on, const CUgraphEdgeData *edges, size_t n,
			       CUgraphNodeParams *p)
{
	CUDA_MEM_ALLOC_NODE_PARAMS allocation;
	CUDA_KERNEL_NODE_PARAMS_v2 kernel;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_BATCH_MEM_OP_NODE_PARAMS memory;
	CUDA_HOST_NODE_PARAMS host;
	CUresult r = any_check(p);

	if (r == CUDA_SUCCESS)
		r = cuda_check_edges(edges, n);
	if (r != CUDA_SUCCESS)
		return r;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel = any_kernel(p);
		return cuGraphAddKernelNode_v2(out, graph, on, n, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(out, graph, on, n, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		fill = any_memset(p);
		return cuGraphAddMemsetNode(out, graph, on, n, &fill, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){ p->host.fn, p->host.userData };
		return cuGraphAddHostNode(out, graph, on, n, &host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(out, graph, on, n, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(out, graph, on, n);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(out, graph, on, n, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(out, graph, on, n, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		allocation = (CUDA_MEM_ALLOC_NODE_PARAMS){ p->alloc.poolProps, p->alloc.accessDescs, p->alloc.accessDescCount,
							   p->alloc.bytesize, 0 };
		r = cuGraphAddMemAllocNode(out, graph, on, n, &allocation);
		if (r == CUDA_SUCCESS)
			p->alloc.dptr = allocation.dptr;
		return r;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(out, graph, on, n, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		memory = any_memory(p);
		return cuGraphAddBatchMemOpNode(out, graph, on, n, &memory);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return conditional_add(out, graph, on, n, &p->conditional);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* From the third version of adding and the second of changing on: a kernel is of the context that is named, if one is. */
static inline CUresult any_check_context(const CUgraphNodeParams *p, bool (*is_of)(CUfunction function, CUcontext context))
{
	return p && p->type == CU_GRAPH_NODE_TYPE_KERNEL && p->kernel.func && p->kernel.ctx &&
			       !is_of(p->kernel.func, p->kernel.ctx) ?
		       CUDA_ERROR_INVALID_CONTEXT :
		       CUDA_SUCCESS;
}

/* Of a graph's node, or of its likeness in an executable graph if there is one. */
static inline CUresult any_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 kernel;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_BATCH_MEM_OP_NODE_PARAMS memory;
	CUDA_HOST_NODE_PARAMS host;
	CUresult r = any_check(p);

	if (r != CUDA_SUCCESS)
		return r;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel = any_kernel(p);
		return exec ? cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel) : cuGraphKernelNodeSetParams_v2(node, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return exec ? cuGraphExecMemcpyNodeSetParams(exec, node, &p->memcpy.copyParams, p->memcpy.copyCtx) :
			      cuGraphMemcpyNodeSetParams(node, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		fill = any_memset(p);
		return exec ? cuGraphExecMemsetNodeSetParams(exec, node, &fill, p->memset.ctx) :
			      cuGraphMemsetNodeSetParams(node, &fill);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){ p->host.fn, p->host.userData };
		return exec ? cuGraphExecHostNodeSetParams(exec, node, &host) : cuGraphHostNodeSetParams(node, &host);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return exec ? cuGraphExecEventWaitNodeSetEvent(exec, node, p->eventWait.event) :
			      cuGraphEventWaitNodeSetEvent(node, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return exec ? cuGraphExecEventRecordNodeSetEvent(exec, node, p->eventRecord.event) :
			      cuGraphEventRecordNodeSetEvent(node, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		memory = any_memory(p);
		return exec ? cuGraphExecBatchMemOpNodeSetParams(exec, node, &memory) : cuGraphBatchMemOpNodeSetParams(node, &memory);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static inline void any_put_kernel(const CUDA_KERNEL_NODE_PARAMS_v2 *k, CUgraphNodeParams *p)
{
	p->kernel.func = k->func;
	p->kernel.kern = k->kern;
	p->kernel.ctx = k->ctx;
	p->kernel.gridDimX = k->gridDimX, p->kernel.gridDimY = k->gridDimY, p->kernel.gridDimZ = k->gridDimZ;
	p->kernel.blockDimX = k->blockDimX, p->kernel.blockDimY = k->blockDimY, p->kernel.blockDimZ = k->blockDimZ;
	p->kernel.sharedMemBytes = k->sharedMemBytes;
	p->kernel.kernelParams = k->kernelParams;
	p->kernel.extra = k->extra;
}

/* What a node does, in the words of any_add(). */
static inline CUresult any_get(CUgraphNode node, CUgraphNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS_v2 kernel = { .func = NULL };
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = 0 };
	CUDA_BATCH_MEM_OP_NODE_PARAMS memory = { .ctx = NULL };
	CUDA_MEM_ALLOC_NODE_PARAMS allocation = { .dptr = 0 };
	CUDA_HOST_NODE_PARAMS host = { .fn = NULL };
	CUgraphNodeType type;
	CUresult r = p ? cuGraphNodeGetType(node, &type) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	*p = (CUgraphNodeParams){ .type = type };
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		r = cuGraphKernelNodeGetParams_v2(node, &kernel);
		any_put_kernel(&kernel, p);
		return r;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphMemcpyNodeGetParams(node, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		r = cuGraphMemsetNodeGetParams(node, &fill);
		p->memset.dst = fill.dst, p->memset.pitch = fill.pitch, p->memset.value = fill.value;
		p->memset.elementSize = fill.elementSize, p->memset.width = fill.width, p->memset.height = fill.height;
		return r;
	case CU_GRAPH_NODE_TYPE_HOST:
		r = cuGraphHostNodeGetParams(node, &host);
		p->host.fn = host.fn, p->host.userData = host.userData;
		return r;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		p->graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID;
		return cuGraphChildGraphNodeGetGraph(node, &p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphEventWaitNodeGetEvent(node, &p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphEventRecordNodeGetEvent(node, &p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		r = cuGraphMemAllocNodeGetParams(node, &allocation);
		p->alloc = (CUDA_MEM_ALLOC_NODE_PARAMS_v2){ allocation.poolProps, allocation.accessDescs,
							    allocation.accessDescCount, allocation.bytesize, allocation.dptr };
		return r;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphMemFreeNodeGetParams(node, &p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		r = cuGraphBatchMemOpNodeGetParams(node, &memory);
		p->memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){ memory.ctx, memory.count, memory.paramArray, memory.flags };
		return r;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return conditional_get(node, &p->conditional);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

#endif
