/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in memory as nodes of a driver that runs nothing. */
#include "nodes.h"

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
