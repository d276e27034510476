/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes by their type. */
#include "graph.h"

#include <any_node.h>

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
			   CUgraphNodeParams *params)
{
	return any_add(out, g, deps, data, n, params);
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraphNodeParams *params)
{
	return any_add(out, g, deps, NULL, n, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return any_set(NULL, node, params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	return exec ? any_set(exec, node, params) : CUDA_ERROR_INVALID_VALUE;
}
