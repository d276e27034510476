/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes by their type. */
#include <any_node.h>
#include <graph_dot.h>

#include "shim.h"

static bool is_of(CUfunction function, CUcontext context)
{
	const struct shim_object *f = shim_object_get(SHIM_FUNCTION, (uint64_t)function);

	return !f || f->context == (uint64_t)context;
}

#define NAMED(r, what)                                                                \
	({                                                                            \
		static atomic_flag told_ = ATOMIC_FLAG_INIT;                          \
		CUresult r_ = r;                                                      \
		r_ == CUDA_ERROR_NOT_SUPPORTED ? shim_unsupported(what, &told_) : (int)r_; \
	})

SHIM_API CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    const CUgraphEdgeData *dependencyData, size_t numDependencies,
				    CUgraphNodeParams *nodeParams)
{
	return NAMED(any_add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams),
		     "a graph's node of that type, or with such edges,");
}

SHIM_API CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

SHIM_API CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	return NAMED(any_set(NULL, hNode, nodeParams), "changing a graph's node of that type");
}

SHIM_API CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	return hGraphExec ? NAMED(any_set(hGraphExec, hNode, nodeParams), "changing a graph's node of that type") :
			    CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    const CUgraphEdgeData *dependencyData, size_t numDependencies,
				    CUgraphNodeParams *nodeParams)
{
	CUresult r = any_check_context(nodeParams, is_of);

	return r == CUDA_SUCCESS ?
		       cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams) :
		       r;
}

SHIM_API CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUresult r = any_check_context(nodeParams, is_of);

	return r == CUDA_SUCCESS ? cuGraphNodeSetParams(hNode, nodeParams) : r;
}

SHIM_API CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	return NAMED(any_get(hNode, nodeParams), "reading a graph's node of that type");
}

SHIM_API CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
	return dot_print(hGraph, path, flags);
}
