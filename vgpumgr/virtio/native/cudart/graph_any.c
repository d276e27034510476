/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs by their type, what nodes do as it is read back, and what else is known of them. */
#include <string.h>

#include "runtime.h"

_Static_assert(sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams), "parameters of any node");
_Static_assert(sizeof(struct cudaMemAllocNodeParamsV2) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2), "memory of graphs");
_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "edges");
_Static_assert(sizeof(cudaKernelNodeAttrValue) == sizeof(CUkernelNodeAttrValue), "attributes of kernels");
_Static_assert((int)cudaLaunchAttributePriority == (int)CU_LAUNCH_ATTRIBUTE_PRIORITY, "names of attributes");
_Static_assert((int)cudaGraphDebugDotFlagsHandles == (int)CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES, "flags of pictures");

_Static_assert((int)cudaGraphCondTypeSwitch == (int)CU_GRAPH_COND_TYPE_SWITCH, "kinds of conditional nodes");
_Static_assert(sizeof(cudaGraphConditionalHandle) == sizeof(CUgraphConditionalHandle), "conditional handles");

#define GRAPH_API(name, params, body)     \
	API cudaError_t name params       \
	{                                 \
		return rt_done(body);     \
	}

/* ---- to the driver */

static cudaError_t lower_kernel(const struct cudaKernelNodeParamsV2 *p, CUgraphNodeParams *out)
{
	struct cudaKernelNodeParams first = { .func = p->func, .gridDim = p->gridDim, .blockDim = p->blockDim,
					      .sharedMemBytes = p->sharedMemBytes, .kernelParams = p->kernelParams,
					      .extra = p->extra };
	CUDA_KERNEL_NODE_PARAMS k = { .func = p->func };
	cudaError_t error = cudaSuccess;

#if CUDART_VERSION >= 13000
	if (p->ctx) /* contexts of parts of a device are not there */
		return cudaErrorNotSupported;
	if (p->functionType != cudaKernelFunctionTypeFunction) /* a kernel's handle may be that of a stub */
#endif
		error = rt_lower_kernel(&first, &k);
	if (error != cudaSuccess)
		return error;
	out->kernel.func = k.func;
	out->kernel.gridDimX = p->gridDim.x, out->kernel.gridDimY = p->gridDim.y, out->kernel.gridDimZ = p->gridDim.z;
	out->kernel.blockDimX = p->blockDim.x, out->kernel.blockDimY = p->blockDim.y, out->kernel.blockDimZ = p->blockDim.z;
	out->kernel.sharedMemBytes = p->sharedMemBytes;
	out->kernel.kernelParams = p->kernelParams;
	out->kernel.extra = p->extra;
	return cudaSuccess;
}

static cudaError_t lower_conditional(const struct cudaConditionalNodeParams *p, CUDA_CONDITIONAL_NODE_PARAMS *out)
{
#if CUDART_VERSION >= 13000
	if (p->ctx) /* contexts of parts of a device are not there */
		return cudaErrorNotSupported;
#endif
	*out = (CUDA_CONDITIONAL_NODE_PARAMS){ p->handle, (CUgraphConditionalNodeType)p->type, p->size, NULL, NULL };
	return rt_error(CU(cuCtxGetCurrent, &out->ctx));
}

static cudaError_t lower(const struct cudaGraphNodeParams *p, CUgraphNodeParams *out)
{
	if (!p || p->reserved0[0] || p->reserved0[1] || p->reserved0[2] || p->reserved2)
		return cudaErrorInvalidValue;
	memset(out, 0, sizeof(*out));
	out->type = (CUgraphNodeType)p->type;
	switch (p->type) {
	case cudaGraphNodeTypeKernel:
		return lower_kernel(&p->kernel, out);
	case cudaGraphNodeTypeMemcpy:
		return rt_lower_copy(&p->memcpy.copyParams, &out->memcpy.copyParams);
	case cudaGraphNodeTypeMemset:
		out->memset.dst = (CUdeviceptr)p->memset.dst, out->memset.pitch = p->memset.pitch;
		out->memset.value = p->memset.value, out->memset.elementSize = p->memset.elementSize;
		out->memset.width = p->memset.width, out->memset.height = p->memset.height;
		return cudaSuccess;
	case cudaGraphNodeTypeHost:
		out->host.fn = p->host.fn, out->host.userData = p->host.userData;
		return cudaSuccess;
	case cudaGraphNodeTypeGraph:
		out->graph.graph = p->graph.graph;
		return cudaSuccess;
	case cudaGraphNodeTypeEmpty:
		return cudaSuccess;
	case cudaGraphNodeTypeMemAlloc:
		memcpy(&out->alloc, &p->alloc, sizeof(out->alloc));
		return cudaSuccess;
	case cudaGraphNodeTypeMemFree:
		out->free.dptr = (CUdeviceptr)p->free.dptr;
		return cudaSuccess;
	case cudaGraphNodeTypeWaitEvent:
		out->eventWait.event = p->eventWait.event;
		return cudaSuccess;
	case cudaGraphNodeTypeEventRecord:
		out->eventRecord.event = p->eventRecord.event;
		return cudaSuccess;
	case cudaGraphNodeTypeConditional:
		return lower_conditional(&p->conditional, &out->conditional);
	default:
		return cudaErrorNotSupported;
	}
}

#define WITH_ANY(params, name, ...)                                                      \
	({                                                                               \
		CUgraphNodeParams lowered;                                               \
		cudaError_t error_ = rt_enter();                                         \
		if (error_ == cudaSuccess)                                               \
			error_ = lower(params, &lowered);                                \
		error_ != cudaSuccess ? error_ : rt_error(CU(name, __VA_ARGS__));        \
	})

static cudaError_t add_any(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
			   const cudaGraphEdgeData *data, size_t count, struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams lowered;
	cudaError_t error = rt_enter();

	if (error == cudaSuccess)
		error = lower(params, &lowered);
	if (error == cudaSuccess)
		error = rt_error(CU(cuGraphAddNode_v2, node, graph, dependencies, (const CUgraphEdgeData *)data, count, &lowered));
	if (error == cudaSuccess && params->type == cudaGraphNodeTypeMemAlloc)
		params->alloc.dptr = (void *)lowered.alloc.dptr;
	if (error == cudaSuccess && params->type == cudaGraphNodeTypeConditional)
		params->conditional.phGraph_out = lowered.conditional.phGraph_out;
	return error;
}

GRAPH_API(cudaGraphNodeSetParams, (cudaGraphNode_t node, struct cudaGraphNodeParams *params),
	  WITH_ANY(params, cuGraphNodeSetParams, node, &lowered))
GRAPH_API(cudaGraphExecNodeSetParams,
	  (cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *params),
	  WITH_ANY(params, cuGraphExecNodeSetParams, exec, node, &lowered))

/* ---- conditional handles */

static cudaError_t make_handle(cudaGraphConditionalHandle *out, cudaGraph_t graph, unsigned int value, unsigned int flags)
{
	CUgraphConditionalHandle made;
	CUcontext context = NULL;
	cudaError_t error = out ? rt_enter() : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = rt_error(CU(cuCtxGetCurrent, &context));
	if (error == cudaSuccess)
		error = rt_error(CU(cuGraphConditionalHandleCreate, &made, graph, context, value, flags));
	if (error == cudaSuccess)
		*out = made;
	return error;
}

GRAPH_API(cudaGraphConditionalHandleCreate,
	  (cudaGraphConditionalHandle *out, cudaGraph_t graph, unsigned int value, unsigned int flags),
	  make_handle(out, graph, value, flags))
#if CUDART_VERSION >= 13000
/* Contexts of parts of a device are not there. */
GRAPH_API(cudaGraphConditionalHandleCreate_v2,
	  (cudaGraphConditionalHandle *out, cudaGraph_t graph, cudaExecutionContext_t context, unsigned int value,
	   unsigned int flags),
	  context ? cudaErrorNotSupported : make_handle(out, graph, value, flags))
#endif

/* ---- from the driver */

static void raise_kernel(const CUDA_KERNEL_NODE_PARAMS *k, struct cudaKernelNodeParams *out)
{
	*out = (struct cudaKernelNodeParams){
		.func = (void *)registry_host_of(k->func ? k->func : (CUfunction)k->kern),
		.gridDim = { k->gridDimX, k->gridDimY, k->gridDimZ },
		.blockDim = { k->blockDimX, k->blockDimY, k->blockDimZ },
		.sharedMemBytes = k->sharedMemBytes,
		.kernelParams = k->kernelParams,
		.extra = k->extra,
	};
}

static cudaError_t read_kernel(cudaGraphNode_t node, struct cudaKernelNodeParams *out)
{
	CUDA_KERNEL_NODE_PARAMS k;
	cudaError_t error = out ? RT_CALL(cuGraphKernelNodeGetParams, node, &k) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		raise_kernel(&k, out);
	return error;
}

static struct cudaPitchedPtr raise_side(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch, size_t height,
					const CUDA_MEMCPY3D *c)
{
	size_t row = pitch ? pitch : c->WidthInBytes;

	return (struct cudaPitchedPtr){ type == CU_MEMORYTYPE_HOST ? (void *)host : (void *)device, row, row,
					height ? height : c->Height };
}

static enum cudaMemcpyKind kind_of(const CUDA_MEMCPY3D *c)
{
	bool from = c->srcMemoryType == CU_MEMORYTYPE_HOST, to = c->dstMemoryType == CU_MEMORYTYPE_HOST;

	if (c->srcMemoryType == CU_MEMORYTYPE_UNIFIED || c->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
		return cudaMemcpyDefault;
	return from ? (to ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice) :
		      (to ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice);
}

static void raise_copy(const CUDA_MEMCPY3D *c, struct cudaMemcpy3DParms *out)
{
	*out = (struct cudaMemcpy3DParms){
		.srcPos = { c->srcXInBytes, c->srcY, c->srcZ },
		.dstPos = { c->dstXInBytes, c->dstY, c->dstZ },
		.srcPtr = raise_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch, c->srcHeight, c),
		.dstPtr = raise_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, c->dstHeight, c),
		.extent = { c->WidthInBytes, c->Height, c->Depth },
		.kind = kind_of(c),
	};
}

static cudaError_t read_copy(cudaGraphNode_t node, struct cudaMemcpy3DParms *out)
{
	CUDA_MEMCPY3D c;
	cudaError_t error = out ? RT_CALL(cuGraphMemcpyNodeGetParams, node, &c) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		raise_copy(&c, out);
	return error;
}

static cudaError_t read_fill(cudaGraphNode_t node, struct cudaMemsetParams *out)
{
	CUDA_MEMSET_NODE_PARAMS m;
	cudaError_t error = out ? RT_CALL(cuGraphMemsetNodeGetParams, node, &m) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*out = (struct cudaMemsetParams){ (void *)m.dst, m.pitch, m.value, m.elementSize, m.width, m.height };
	return error;
}

GRAPH_API(cudaGraphKernelNodeGetParams, (cudaGraphNode_t node, struct cudaKernelNodeParams *params), read_kernel(node, params))
GRAPH_API(cudaGraphMemcpyNodeGetParams, (cudaGraphNode_t node, struct cudaMemcpy3DParms *params), read_copy(node, params))
GRAPH_API(cudaGraphMemsetNodeGetParams, (cudaGraphNode_t node, struct cudaMemsetParams *params), read_fill(node, params))

/* ---- attributes, child graphs, pictures */

GRAPH_API(cudaGraphKernelNodeGetAttribute,
	  (cudaGraphNode_t node, cudaKernelNodeAttrID id, cudaKernelNodeAttrValue *value),
	  RT_CALL(cuGraphKernelNodeGetAttribute, node, (CUkernelNodeAttrID)id, (CUkernelNodeAttrValue *)value))
GRAPH_API(cudaGraphKernelNodeSetAttribute,
	  (cudaGraphNode_t node, cudaKernelNodeAttrID id, const cudaKernelNodeAttrValue *value),
	  RT_CALL(cuGraphKernelNodeSetAttribute, node, (CUkernelNodeAttrID)id, (const CUkernelNodeAttrValue *)value))
/* The destination comes first, whatever 12's header calls the parameters: it documents them so. */
GRAPH_API(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t to, cudaGraphNode_t from),
	  RT_CALL(cuGraphKernelNodeCopyAttributes, to, from))
GRAPH_API(cudaGraphExecChildGraphNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child),
	  RT_CALL(cuGraphExecChildGraphNodeSetParams, exec, node, child))
GRAPH_API(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned int flags),
	  RT_CALL(cuGraphDebugDotPrint, graph, path, flags))

/* ---- what differs between the versions: data of edges, and numbers */

#if CUDART_VERSION >= 13000
GRAPH_API(cudaGraphAddNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *data,
	   size_t count, struct cudaGraphNodeParams *params),
	  add_any(node, graph, dependencies, data, count, params))

static void raise_any(const CUgraphNodeParams *p, struct cudaGraphNodeParams *out)
{
	struct cudaKernelNodeParams k;
	CUDA_KERNEL_NODE_PARAMS given = {
		.func = p->kernel.func, .kern = p->kernel.kern, .gridDimX = p->kernel.gridDimX, .gridDimY = p->kernel.gridDimY,
		.gridDimZ = p->kernel.gridDimZ, .blockDimX = p->kernel.blockDimX, .blockDimY = p->kernel.blockDimY,
		.blockDimZ = p->kernel.blockDimZ, .sharedMemBytes = p->kernel.sharedMemBytes,
		.kernelParams = p->kernel.kernelParams, .extra = p->kernel.extra,
	};

	memset(out, 0, sizeof(*out));
	out->type = (enum cudaGraphNodeType)p->type;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		raise_kernel(&given, &k);
		out->kernel = (struct cudaKernelNodeParamsV2){ .func = k.func, .gridDim = k.gridDim, .blockDim = k.blockDim,
							       .sharedMemBytes = k.sharedMemBytes,
							       .kernelParams = k.kernelParams, .extra = k.extra };
		out->kernel.functionType = k.func == (void *)p->kernel.func ? cudaKernelFunctionTypeFunction :
									      cudaKernelFunctionTypeDeviceEntry;
		return;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		raise_copy(&p->memcpy.copyParams, &out->memcpy.copyParams);
		return;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		out->memset.dst = (void *)p->memset.dst, out->memset.pitch = p->memset.pitch;
		out->memset.value = p->memset.value, out->memset.elementSize = p->memset.elementSize;
		out->memset.width = p->memset.width, out->memset.height = p->memset.height;
		return;
	case CU_GRAPH_NODE_TYPE_HOST:
		out->host.fn = p->host.fn, out->host.userData = p->host.userData;
		return;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		out->graph.graph = p->graph.graph;
		out->graph.ownership = (enum cudaGraphChildGraphNodeOwnership)p->graph.ownership;
		return;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		memcpy(&out->alloc, &p->alloc, sizeof(out->alloc));
		return;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		out->free.dptr = (void *)p->free.dptr;
		return;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		out->eventWait.event = p->eventWait.event;
		return;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		out->eventRecord.event = p->eventRecord.event;
		return;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		out->conditional.handle = p->conditional.handle;
		out->conditional.type = (enum cudaGraphConditionalNodeType)p->conditional.type;
		out->conditional.size = p->conditional.size;
		out->conditional.phGraph_out = p->conditional.phGraph_out;
		return;
	default:
		return;
	}
}

static cudaError_t read_any(cudaGraphNode_t node, struct cudaGraphNodeParams *out)
{
	CUgraphNodeParams p;
	cudaError_t error = out ? RT_CALL(cuGraphNodeGetParams, node, &p) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		raise_any(&p, out);
	return error;
}

GRAPH_API(cudaGraphNodeGetParams, (cudaGraphNode_t node, struct cudaGraphNodeParams *params), read_any(node, params))
GRAPH_API(cudaGraphGetId, (cudaGraph_t graph, unsigned int *id), RT_CALL(cuGraphGetId, graph, id))
GRAPH_API(cudaGraphExecGetId, (cudaGraphExec_t exec, unsigned int *id), RT_CALL(cuGraphExecGetId, exec, id))
GRAPH_API(cudaGraphNodeGetContainingGraph, (cudaGraphNode_t node, cudaGraph_t *graph),
	  RT_CALL(cuGraphNodeGetContainingGraph, node, graph))
GRAPH_API(cudaGraphNodeGetLocalId, (cudaGraphNode_t node, unsigned int *id), RT_CALL(cuGraphNodeGetLocalId, node, id))
GRAPH_API(cudaGraphNodeGetToolsId, (cudaGraphNode_t node, unsigned long long *id),
	  RT_CALL(cuGraphNodeGetToolsId, node, id))
#else
GRAPH_API(cudaGraphAddNode,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
	   struct cudaGraphNodeParams *params),
	  add_any(node, graph, dependencies, NULL, count, params))
GRAPH_API(cudaGraphAddNode_v2,
	  (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *data,
	   size_t count, struct cudaGraphNodeParams *params),
	  add_any(node, graph, dependencies, data, count, params))
GRAPH_API(cudaGraphGetEdges_v2,
	  (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphGetEdges_v2, graph, from, to, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphNodeGetDependencies_v2,
	  (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphNodeGetDependencies_v2, node, nodes, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphNodeGetDependentNodes_v2,
	  (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
	  RT_CALL(cuGraphNodeGetDependentNodes_v2, node, nodes, (CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphAddDependencies_v2,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *data,
	   size_t count),
	  RT_CALL(cuGraphAddDependencies_v2, graph, from, to, (const CUgraphEdgeData *)data, count))
GRAPH_API(cudaGraphRemoveDependencies_v2,
	  (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, const cudaGraphEdgeData *data,
	   size_t count),
	  RT_CALL(cuGraphRemoveDependencies_v2, graph, from, to, (const CUgraphEdgeData *)data, count))
#endif
