/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes by their type. */
#include "graph.h"

#include <any_node.h>
#include <graph_dot.h>

static bool is_of(CUfunction function, CUcontext context)
{
	CUcontext before;
	CUmodule module;
	CUresult r = cuCtxPushCurrent_v2(context);

	if (r != CUDA_SUCCESS)
		return false;
	r = cuFuncGetModule(&module, function);
	cuCtxPopCurrent_v2(&before);
	return r == CUDA_SUCCESS;
}

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

CUresult cuGraphAddNode_v3(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
			   CUgraphNodeParams *params)
{
	CUresult r = any_check_context(params, is_of);

	return r == CUDA_SUCCESS ? any_add(out, g, deps, data, n, params) : r;
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
	CUresult r = any_check_context(params, is_of);

	return r == CUDA_SUCCESS ? any_set(NULL, node, params) : r;
}

CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return any_get(node, params);
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	return dot_print(graph, path, flags);
}
