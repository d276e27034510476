/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that allocate memory and free it. */
#include "runtime.h"

_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "memory of graphs");
_Static_assert(offsetof(struct cudaMemAllocNodeParams, dptr) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr), "memory of graphs");
_Static_assert((int)cudaGraphMemAttrReservedMemHigh == (int)CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, "attributes of such memory");

#define GRAPH_API(name, params, body)     \
	API cudaError_t name params       \
	{                                 \
		return rt_done(body);     \
	}

#define WITH_DEVICE(ordinal, name, ...)                                                      \
	({                                                                                   \
		CUdevice device_;                                                            \
		cudaError_t error_ = rt_device(ordinal, &device_);                           \
		error_ == cudaSuccess ? rt_error(CU(name, device_, ##__VA_ARGS__)) : error_; \
	})

GRAPH_API(cudaGraphAddMemAllocNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   struct cudaMemAllocNodeParams *params),
	  RT_CALL(cuGraphAddMemAllocNode, node, graph, dependencies, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)params))
GRAPH_API(cudaGraphMemAllocNodeGetParams, (cudaGraphNode_t node, struct cudaMemAllocNodeParams *params),
	  RT_CALL(cuGraphMemAllocNodeGetParams, node, (CUDA_MEM_ALLOC_NODE_PARAMS *)params))
GRAPH_API(cudaGraphAddMemFreeNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, void *memory),
	  RT_CALL(cuGraphAddMemFreeNode, node, graph, dependencies, count, (CUdeviceptr)memory))
GRAPH_API(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *memory),
	  RT_CALL(cuGraphMemFreeNodeGetParams, node, (CUdeviceptr *)memory))
GRAPH_API(cudaDeviceGraphMemTrim, (int ordinal), WITH_DEVICE(ordinal, cuDeviceGraphMemTrim))
GRAPH_API(cudaDeviceGetGraphMemAttribute, (int ordinal, enum cudaGraphMemAttributeType attribute, void *value),
	  WITH_DEVICE(ordinal, cuDeviceGetGraphMemAttribute, (CUgraphMem_attribute)attribute, value))
GRAPH_API(cudaDeviceSetGraphMemAttribute, (int ordinal, enum cudaGraphMemAttributeType attribute, void *value),
	  WITH_DEVICE(ordinal, cuDeviceSetGraphMemAttribute, (CUgraphMem_attribute)attribute, value))
