/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs. Most calls are the driver's own under another name. */
#include "runtime.h"

_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS), "instantiation parameters");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo), "results of updates");
_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS), "host nodes");
_Static_assert((int)cudaGraphNodeTypeEventRecord == (int)CU_GRAPH_NODE_TYPE_EVENT_RECORD, "types of nodes");
_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "edges");

#define GRAPH_API(name, params, body)     \
	API cudaError_t name params       \
	{                                 \
		return rt_done(body);     \
	}

GRAPH_API(cudaGraphCreate, (cudaGraph_t *graph, unsigned int flags), RT_CALL(cuGraphCreate, graph, flags))
GRAPH_API(cudaGraphDestroy, (cudaGraph_t graph), RT_CALL(cuGraphDestroy, graph))
GRAPH_API(cudaGraphClone, (cudaGraph_t *clone, cudaGraph_t graph), RT_CALL(cuGraphClone, clone, graph))
GRAPH_API(cudaGraphNodeFindInClone, (cudaGraphNode_t *out, cudaGraphNode_t node, cudaGraph_t clone),
	  RT_CALL(cuGraphNodeFindInClone, out, node, clone))
GRAPH_API(cudaGraphNodeGetType, (cudaGraphNode_t node, enum cudaGraphNodeType *type),
	  RT_CALL(cuGraphNodeGetType, node, (CUgraphNodeType *)type))
GRAPH_API(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
	  RT_CALL(cuGraphGetNodes, graph, nodes, count))
GRAPH_API(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
	  RT_CALL(cuGraphGetRootNodes, graph, nodes, count))
GRAPH_API(cudaGraphDestroyNode, (cudaGraphNode_t node), RT_CALL(cuGraphDestroyNode, node))

/* From 13 on edges have data, and the driver's plain names with them. */
#if CUDART_VERSION >= 13000
GRAPH_API(cudaGraphGetEdges,
	  (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphGetEdges, graph, from, to, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphNodeGetDependencies,
	  (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphNodeGetDependencies, node, nodes, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphNodeGetDependentNodes,
	  (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphNodeGetDependentNodes, node, nodes, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphAddDependencies,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *data,
	   size_t count),
	  RT_CALL(cuGraphAddDependencies, graph, from, to, (const CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphRemoveDependencies,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *data,
	   size_t count),
	  RT_CALL(cuGraphRemoveDependencies, graph, from, to, (const CUgraphEdgeData *)data, count))
#else
GRAPH_API(cudaGraphGetEdges, (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count),
	  RT_CALL(cuGraphGetEdges, graph, from, to, count))
GRAPH_API(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *count),
	  RT_CALL(cuGraphNodeGetDependencies, node, nodes, count))
GRAPH_API(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *count),
	  RT_CALL(cuGraphNodeGetDependentNodes, node, nodes, count))
GRAPH_API(cudaGraphAddDependencies,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count),
	  RT_CALL(cuGraphAddDependencies, graph, from, to, count))
GRAPH_API(cudaGraphRemoveDependencies,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count),
	  RT_CALL(cuGraphRemoveDependencies, graph, from, to, count))
#endif

/* ---- what nodes do */

cudaError_t rt_lower_kernel(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *out)
{
	CUfunction function;
	cudaError_t error = p ? rt_enter() : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = registry_function(p->func, &function);
	if (error != cudaSuccess)
		return error;
	*out = (CUDA_KERNEL_NODE_PARAMS){
		.func = function,
		.gridDimX = p->gridDim.x, .gridDimY = p->gridDim.y, .gridDimZ = p->gridDim.z,
		.blockDimX = p->blockDim.x, .blockDimY = p->blockDim.y, .blockDimZ = p->blockDim.z,
		.sharedMemBytes = p->sharedMemBytes, .kernelParams = p->kernelParams, .extra = p->extra,
	};
	return cudaSuccess;
}

/* A driver's call with what a node is to do, in the driver's words; `lowered` is that in the call's arguments. */
#define WITH_KERNEL(params, name, ...)                                                   \
	({                                                                               \
		CUDA_KERNEL_NODE_PARAMS lowered;                                         \
		cudaError_t error_ = rt_lower_kernel(params, &lowered);                     \
		error_ != cudaSuccess ? error_ : rt_error(CU(name, __VA_ARGS__));        \
	})

GRAPH_API(cudaGraphAddKernelNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   const struct cudaKernelNodeParams *params),
	  WITH_KERNEL(params, cuGraphAddKernelNode, node, graph, dependencies, count, &lowered))
GRAPH_API(cudaGraphKernelNodeSetParams, (cudaGraphNode_t node, const struct cudaKernelNodeParams *params),
	  WITH_KERNEL(params, cuGraphKernelNodeSetParams, node, &lowered))
GRAPH_API(cudaGraphExecKernelNodeSetParams,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *params),
	  WITH_KERNEL(params, cuGraphExecKernelNodeSetParams, exec, node, &lowered))

static cudaError_t current_context(CUcontext *context)
{
	return RT_CALL(cuCtxGetCurrent, context);
}

#define WITH_COPY(params, name, ...)                                                     \
	({                                                                               \
		CUDA_MEMCPY3D lowered;                                                   \
		CUcontext context;                                                       \
		cudaError_t error_ = rt_lower_copy(params, &lowered);                    \
		if (error_ == cudaSuccess)                                               \
			error_ = current_context(&context);                              \
		error_ != cudaSuccess ? error_ : rt_error(CU(name, __VA_ARGS__));        \
	})

static struct cudaMemcpy3DParms linear(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	return (struct cudaMemcpy3DParms){
		.dstPtr = { dst, count, count, 1 },
		.srcPtr = { (void *)src, count, count, 1 },
		.extent = { count, 1, 1 },
		.kind = kind,
	};
}

static cudaError_t add_copy(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
			    const struct cudaMemcpy3DParms *params)
{
	return WITH_COPY(params, cuGraphAddMemcpyNode, node, graph, dependencies, count, &lowered, context);
}

static cudaError_t set_copy(cudaGraphNode_t node, const struct cudaMemcpy3DParms *params)
{
	return WITH_COPY(params, cuGraphMemcpyNodeSetParams, node, &lowered);
}

static cudaError_t set_exec_copy(cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemcpy3DParms *params)
{
	return WITH_COPY(params, cuGraphExecMemcpyNodeSetParams, exec, node, &lowered, context);
}

GRAPH_API(cudaGraphAddMemcpyNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   const struct cudaMemcpy3DParms *params),
	  add_copy(node, graph, dependencies, count, params))
GRAPH_API(cudaGraphMemcpyNodeSetParams, (cudaGraphNode_t node, const struct cudaMemcpy3DParms *params),
	  set_copy(node, params))
GRAPH_API(cudaGraphExecMemcpyNodeSetParams,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemcpy3DParms *params),
	  set_exec_copy(exec, node, params))
GRAPH_API(cudaGraphAddMemcpyNode1D,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t n, void *dst,
	   const void *src, size_t count, enum cudaMemcpyKind kind),
	  (add_copy(node, graph, dependencies, n, &(struct cudaMemcpy3DParms[]){ linear(dst, src, count, kind) }[0])))
GRAPH_API(cudaGraphMemcpyNodeSetParams1D,
	  (cudaGraphNode_t node, void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
	  (set_copy(node, &(struct cudaMemcpy3DParms[]){ linear(dst, src, count, kind) }[0])))
GRAPH_API(cudaGraphExecMemcpyNodeSetParams1D,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
	  (set_exec_copy(exec, node, &(struct cudaMemcpy3DParms[]){ linear(dst, src, count, kind) }[0])))

/* ---- copies from and to variables */

static cudaError_t to_symbol(const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind,
			     struct cudaMemcpy3DParms *out)
{
	void *dst;
	cudaError_t error = rt_to_symbol(symbol, offset, count, kind, &dst);

	if (error == cudaSuccess)
		*out = linear(dst, src, count, kind);
	return error;
}

static cudaError_t from_symbol(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
			       struct cudaMemcpy3DParms *out)
{
	void *src;
	cudaError_t error = rt_from_symbol(symbol, offset, count, kind, &src);

	if (error == cudaSuccess)
		*out = linear(dst, src, count, kind);
	return error;
}

/* `then` uses `copy`. */
#define WITH_SYMBOL(made, then)                                     \
	({                                                          \
		struct cudaMemcpy3DParms copy;                      \
		cudaError_t symbol_error_ = made;                   \
		symbol_error_ != cudaSuccess ? symbol_error_ : then;\
	})

GRAPH_API(cudaGraphAddMemcpyNodeToSymbol,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t n, const void *symbol,
	   const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind),
	  WITH_SYMBOL(to_symbol(symbol, src, count, offset, kind, &copy), add_copy(node, graph, dependencies, n, &copy)))
GRAPH_API(cudaGraphAddMemcpyNodeFromSymbol,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t n, void *dst,
	   const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
	  WITH_SYMBOL(from_symbol(dst, symbol, count, offset, kind, &copy), add_copy(node, graph, dependencies, n, &copy)))
GRAPH_API(cudaGraphMemcpyNodeSetParamsToSymbol,
	  (cudaGraphNode_t node, const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind),
	  WITH_SYMBOL(to_symbol(symbol, src, count, offset, kind, &copy), set_copy(node, &copy)))
GRAPH_API(cudaGraphMemcpyNodeSetParamsFromSymbol,
	  (cudaGraphNode_t node, void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
	  WITH_SYMBOL(from_symbol(dst, symbol, count, offset, kind, &copy), set_copy(node, &copy)))
GRAPH_API(cudaGraphExecMemcpyNodeSetParamsToSymbol,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, const void *symbol, const void *src, size_t count, size_t offset,
	   enum cudaMemcpyKind kind),
	  WITH_SYMBOL(to_symbol(symbol, src, count, offset, kind, &copy), set_exec_copy(exec, node, &copy)))
GRAPH_API(cudaGraphExecMemcpyNodeSetParamsFromSymbol,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, void *dst, const void *symbol, size_t count, size_t offset,
	   enum cudaMemcpyKind kind),
	  WITH_SYMBOL(from_symbol(dst, symbol, count, offset, kind, &copy), set_exec_copy(exec, node, &copy)))

#define WITH_FILL(p, name, ...)                                                                          \
	({                                                                                               \
		CUDA_MEMSET_NODE_PARAMS lowered;                                                         \
		CUcontext context;                                                                       \
		cudaError_t error_ = p ? current_context(&context) : cudaErrorInvalidValue;              \
		if (error_ == cudaSuccess)                                                               \
			lowered = (CUDA_MEMSET_NODE_PARAMS){ (CUdeviceptr)p->dst, p->pitch, p->value,    \
							     p->elementSize, p->width, p->height };      \
		error_ != cudaSuccess ? error_ : rt_error(CU(name, __VA_ARGS__));                        \
	})

GRAPH_API(cudaGraphAddMemsetNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   const struct cudaMemsetParams *params),
	  WITH_FILL(params, cuGraphAddMemsetNode, node, graph, dependencies, count, &lowered, context))
GRAPH_API(cudaGraphMemsetNodeSetParams, (cudaGraphNode_t node, const struct cudaMemsetParams *params),
	  WITH_FILL(params, cuGraphMemsetNodeSetParams, node, &lowered))
GRAPH_API(cudaGraphExecMemsetNodeSetParams,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaMemsetParams *params),
	  WITH_FILL(params, cuGraphExecMemsetNodeSetParams, exec, node, &lowered, context))

GRAPH_API(cudaGraphAddHostNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   const struct cudaHostNodeParams *params),
	  RT_CALL(cuGraphAddHostNode, node, graph, dependencies, count, (const CUDA_HOST_NODE_PARAMS *)params))
GRAPH_API(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, struct cudaHostNodeParams *params),
	  RT_CALL(cuGraphHostNodeGetParams, node, (CUDA_HOST_NODE_PARAMS *)params))
GRAPH_API(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const struct cudaHostNodeParams *params),
	  RT_CALL(cuGraphHostNodeSetParams, node, (const CUDA_HOST_NODE_PARAMS *)params))
GRAPH_API(cudaGraphExecHostNodeSetParams,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaHostNodeParams *params),
	  RT_CALL(cuGraphExecHostNodeSetParams, exec, node, (const CUDA_HOST_NODE_PARAMS *)params))
GRAPH_API(cudaGraphAddEmptyNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count),
	  RT_CALL(cuGraphAddEmptyNode, node, graph, dependencies, count))
GRAPH_API(cudaGraphAddChildGraphNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaGraph_t child),
	  RT_CALL(cuGraphAddChildGraphNode, node, graph, dependencies, count, child))
GRAPH_API(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *graph),
	  RT_CALL(cuGraphChildGraphNodeGetGraph, node, graph))
GRAPH_API(cudaGraphAddEventRecordNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaEvent_t event),
	  RT_CALL(cuGraphAddEventRecordNode, node, graph, dependencies, count, event))
GRAPH_API(cudaGraphAddEventWaitNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count, cudaEvent_t event),
	  RT_CALL(cuGraphAddEventWaitNode, node, graph, dependencies, count, event))
GRAPH_API(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
	  RT_CALL(cuGraphEventRecordNodeGetEvent, node, event))
GRAPH_API(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
	  RT_CALL(cuGraphEventWaitNodeGetEvent, node, event))
GRAPH_API(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
	  RT_CALL(cuGraphEventRecordNodeSetEvent, node, event))
GRAPH_API(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
	  RT_CALL(cuGraphEventWaitNodeSetEvent, node, event))
GRAPH_API(cudaGraphExecEventRecordNodeSetEvent, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
	  RT_CALL(cuGraphExecEventRecordNodeSetEvent, exec, node, event))
GRAPH_API(cudaGraphExecEventWaitNodeSetEvent, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
	  RT_CALL(cuGraphExecEventWaitNodeSetEvent, exec, node, event))

/* ---- executable graphs */

GRAPH_API(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags),
	  RT_CALL(cuGraphInstantiateWithFlags, exec, graph, flags))
GRAPH_API(cudaGraphInstantiate, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags),
	  RT_CALL(cuGraphInstantiateWithFlags, exec, graph, flags))

API cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphInstantiateParams *params)
{
	return rt_done(
		RT_CALL(cuGraphInstantiateWithParams, exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params));
}

API cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t *exec, cudaGraph_t graph,
						    cudaGraphInstantiateParams *params)
{
	return cudaGraphInstantiateWithParams(exec, graph, params);
}

STREAM_API(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), RT_CALL(cuGraphLaunch, exec, stream))
STREAM_API(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), RT_CALL(cuGraphUpload, exec, stream))
GRAPH_API(cudaGraphExecDestroy, (cudaGraphExec_t exec), RT_CALL(cuGraphExecDestroy, exec))
GRAPH_API(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
	  RT_CALL(cuGraphExecGetFlags, exec, (cuuint64_t *)flags))
GRAPH_API(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info),
	  RT_CALL(cuGraphExecUpdate, exec, graph, (CUgraphExecUpdateResultInfo *)info))
GRAPH_API(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
	  RT_CALL(cuGraphNodeSetEnabled, exec, node, enabled))
GRAPH_API(cudaGraphNodeGetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
	  RT_CALL(cuGraphNodeGetEnabled, exec, node, enabled))

/* ---- objects that graphs hold */

GRAPH_API(cudaUserObjectCreate,
	  (cudaUserObject_t *object, void *data, cudaHostFn_t destroy, unsigned int references, unsigned int flags),
	  RT_CALL(cuUserObjectCreate, (CUuserObject *)object, data, destroy, references, flags))
GRAPH_API(cudaUserObjectRetain, (cudaUserObject_t object, unsigned int count),
	  RT_CALL(cuUserObjectRetain, (CUuserObject)object, count))
GRAPH_API(cudaUserObjectRelease, (cudaUserObject_t object, unsigned int count),
	  RT_CALL(cuUserObjectRelease, (CUuserObject)object, count))
GRAPH_API(cudaGraphRetainUserObject,
	  (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
	  RT_CALL(cuGraphRetainUserObject, graph, (CUuserObject)object, count, flags))
GRAPH_API(cudaGraphReleaseUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
	  RT_CALL(cuGraphReleaseUserObject, graph, (CUuserObject)object, count))

/* ---- capture */

STREAM_API(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
	   RT_CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode))
STREAM_API(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), RT_CALL(cuStreamEndCapture, stream, graph))
STREAM_API(cudaStreamBeginCaptureToGraph,
	   (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes, const cudaGraphEdgeData *data, size_t count,
	    enum cudaStreamCaptureMode mode),
	   RT_CALL(cuStreamBeginCaptureToGraph, stream, graph, nodes, (const CUgraphEdgeData *)data, count,
		   (CUstreamCaptureMode)mode))
#if CUDART_VERSION >= 13000
STREAM_API(cudaStreamUpdateCaptureDependencies,
	   (cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *data, size_t count, unsigned int flags),
	   RT_CALL(cuStreamUpdateCaptureDependencies, stream, nodes, (const CUgraphEdgeData *)data, count, flags))
#else
STREAM_API(cudaStreamUpdateCaptureDependencies,
	   (cudaStream_t stream, cudaGraphNode_t *nodes, size_t count, unsigned int flags),
	   RT_CALL(cuStreamUpdateCaptureDependencies, stream, nodes, count, flags))
STREAM_API(cudaStreamUpdateCaptureDependencies_v2,
	   (cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *data, size_t count, unsigned int flags),
	   RT_CALL(cuStreamUpdateCaptureDependencies_v2, stream, nodes, (const CUgraphEdgeData *)data, count, flags))
#endif
