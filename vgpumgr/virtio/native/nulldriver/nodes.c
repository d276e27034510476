/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes of a driver that runs nothing do, for who asks. Parameters of kernels are all zeros. */
#include "nodes.h"

enum { PARAMETERS = 4096, PARAMETER_BYTES = 32768 };

CUgraphNodeType null_node_type(CUgraphNode node)
{
	static const CUgraphNodeType types[] = { CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_MEMCPY,
						 CU_GRAPH_NODE_TYPE_HOST,  CU_GRAPH_NODE_TYPE_GRAPH,
						 CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMSET,
						 CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
						 CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
						 CU_GRAPH_NODE_TYPE_CONDITIONAL };

	return types[null_is_marked(node)];
}

static void check(CUgraphNode node, CUgraphNodeType type)
{
	null_check(NULL_NODE, node);
	if (null_node_type(node) != type)
		null_abort("a node is read as what it is not");
}

NULL_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params)
{
	ENTER;
	null_check(NULL_NODE, node);
	*params = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_HOST };
	if (null_is_marked(node) == IS_DEVICE_COPY)
		params->dstMemoryType = CU_MEMORYTYPE_DEVICE;
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	static const char zeros[PARAMETER_BYTES];
	static _Thread_local void *values[PARAMETERS]; /* until the next call of the thread */

	ENTER;
	check(node, CU_GRAPH_NODE_TYPE_KERNEL);
	for (int i = 0; i < PARAMETERS; i++)
		values[i] = (void *)zeros;
	*params = (CUDA_KERNEL_NODE_PARAMS_v2){ .func = null_kept(node)[0], .kernelParams = values };
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
	ENTER;
	check(node, CU_GRAPH_NODE_TYPE_MEMSET);
	*params = (CUDA_MEMSET_NODE_PARAMS){ .dst = (CUdeviceptr)null_kept(node)[0], .elementSize = 1, .width = 1, .height = 1 };
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	ENTER;
	check(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	*event = null_kept(node)[0];
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	ENTER;
	check(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
	*event = null_kept(node)[0];
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
	ENTER;
	(void)id;
	check(node, CU_GRAPH_NODE_TYPE_KERNEL);
	*value = (CUkernelNodeAttrValue){ .pad = { 0 } };
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
	ENTER;
	(void)id, (void)value;
	check(node, CU_GRAPH_NODE_TYPE_KERNEL);
	return CUDA_SUCCESS;
}

NULL_API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	ENTER;
	check(to, CU_GRAPH_NODE_TYPE_KERNEL);
	check(from, CU_GRAPH_NODE_TYPE_KERNEL);
	return CUDA_SUCCESS;
}
