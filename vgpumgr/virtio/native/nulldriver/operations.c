/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in memory, and conditional nodes, of a driver that runs nothing. */
#include "nodes.h"

#include <stdatomic.h>

NULL_API CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
					   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	ENTER;
	null_check(NULL_CONTEXT, params->ctx);
	null_check_operations(params->paramArray, params->count, params->flags);
	return null_add_marked(node, graph, dependencies, count, IS_MEMORY, params->ctx);
}

/* Two barriers. */
NULL_API CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	static CUstreamBatchMemOpParams barriers[2] = { { .operation = CU_STREAM_MEM_OP_BARRIER },
						       { .operation = CU_STREAM_MEM_OP_BARRIER } };

	ENTER;
	null_check(NULL_NODE, node);
	if (null_node_type(node) != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		null_abort("a node is read as what it is not");
	*params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ null_kept(node)[0], 2, barriers, 0 };
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	ENTER;
	null_check_operations(params->paramArray, params->count, params->flags);
	return null_change(NULL, node);
}

NULL_API CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
						     const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	ENTER;
	null_check_operations(params->paramArray, params->count, params->flags);
	return null_change(exec, node);
}

static _Atomic uint64_t conditions;

NULL_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
						 unsigned int value, unsigned int flags)
{
	ENTER;
	(void)value;
	null_check(NULL_GRAPH, graph);
	null_check(NULL_CONTEXT, context);
	if (flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
		null_abort("flags of a conditional handle that are none");
	*handle = atomic_fetch_add(&conditions, 1) + 1;
	return CUDA_SUCCESS;
}

/* The bodies are the node's; the array that tells them is of the call. */
NULL_API CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				    const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
	static _Thread_local CUgraph bodies[256];
	CUDA_CONDITIONAL_NODE_PARAMS *p = &params->conditional;

	ENTER;
	(void)data;
	if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || !p->handle || p->handle > atomic_load(&conditions) || !p->size ||
	    p->size > sizeof(bodies) / sizeof(bodies[0]))
		null_abort("a conditional node that is none, or of an unknown handle");
	null_check(NULL_CONTEXT, p->ctx);
	null_add_marked(node, graph, dependencies, count, IS_CONDITIONAL, NULL);
	null_mark(graph, DECIDES);
	for (unsigned int i = 0; i < p->size; i++)
		bodies[i] = null_owned(NULL_GRAPH, *node);
	p->phGraph_out = bodies;
	return CUDA_SUCCESS;
}
