/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and the host functions in them. */
#include <stdlib.h>

#include "runtime.h"

static cudaError_t create(cudaStream_t *stream, unsigned int flags)
{
	return stream ? RT_CALL(cuStreamCreate, stream, flags) : cudaErrorInvalidValue;
}

API cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
	return rt_done(create(pStream, cudaStreamDefault));
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
	return rt_done(create(pStream, flags));
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority)
{
	return rt_done(pStream ? RT_CALL(cuStreamCreateWithPriority, pStream, flags, priority) : cudaErrorInvalidValue);
}

/* The three handles that name default streams are not there to be destroyed. */
API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
		return rt_done(cudaErrorInvalidResourceHandle);
	return rt_done(RT_CALL(cuStreamDestroy, stream));
}

STREAM_API(cudaStreamQuery, (cudaStream_t stream), RT_CALL(cuStreamQuery, stream))
STREAM_API(cudaStreamSynchronize, (cudaStream_t stream), RT_CALL(cuStreamSynchronize, stream))
STREAM_API(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
	   RT_CALL(cuStreamWaitEvent, stream, event, flags))
STREAM_API(cudaStreamGetPriority, (cudaStream_t stream, int *priority),
	   priority ? RT_CALL(cuStreamGetPriority, stream, priority) : cudaErrorInvalidValue)
STREAM_API(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
	   flags ? RT_CALL(cuStreamGetFlags, stream, flags) : cudaErrorInvalidValue)
STREAM_API(cudaStreamGetId, (cudaStream_t stream, unsigned long long *streamId),
	   streamId ? RT_CALL(cuStreamGetId, stream, streamId) : cudaErrorInvalidValue)

#if CUDART_VERSION >= 12080
/* cuStreamGetDevice came with 12.8; the stream's context knows its device in every driver. */
static cudaError_t stream_device(cudaStream_t stream, int *ordinal)
{
	CUcontext context, popped;
	CUdevice device;
	CUresult result;
	cudaError_t error = ordinal ? RT_CALL(cuStreamGetCtx, stream, &context) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = rt_error(CU(cuCtxPushCurrent, context));
	if (error != cudaSuccess)
		return error;
	result = CU(cuCtxGetDevice, &device);
	CU(cuCtxPopCurrent, &popped);
	if (result == CUDA_SUCCESS)
		*ordinal = rt_ordinal(device);
	return rt_error(result);
}

STREAM_API(cudaStreamGetDevice, (cudaStream_t stream, int *device), stream_device(stream, device))
#endif

/* Attributes pass to the driver as they are. */
_Static_assert(sizeof(cudaStreamAttrValue) == sizeof(CUstreamAttrValue), "stream attributes");

STREAM_API(cudaStreamGetAttribute, (cudaStream_t stream, cudaStreamAttrID attr, cudaStreamAttrValue *value),
	   value ? RT_CALL(cuStreamGetAttribute, stream, (CUstreamAttrID)attr, (CUstreamAttrValue *)value) :
		   cudaErrorInvalidValue)
STREAM_API(cudaStreamSetAttribute, (cudaStream_t stream, cudaStreamAttrID attr, const cudaStreamAttrValue *value),
	   value ? RT_CALL(cuStreamSetAttribute, stream, (CUstreamAttrID)attr, (const CUstreamAttrValue *)value) :
		   cudaErrorInvalidValue)

API cudaError_t cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src)
{
	return rt_done(RT_CALL(cuStreamCopyAttributes, dst, src));
}

API cudaError_t cudaStreamCopyAttributes_ptsz(cudaStream_t dst, cudaStream_t src)
{
	return rt_done(RT_CALL(cuStreamCopyAttributes, rt_thread_stream(dst), rt_thread_stream(src)));
}

/* Frameworks ask before every allocation. */
static cudaError_t is_capturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	CUstreamCaptureStatus answer = CU_STREAM_CAPTURE_STATUS_NONE;
	cudaError_t error = status ? RT_CALL(cuStreamIsCapturing, stream, &answer) : cudaErrorInvalidValue;

	if (error == cudaErrorNotSupported) /* a driver that cannot capture has no capturing streams */
		error = cudaSuccess;
	if (error == cudaSuccess)
		*status = (enum cudaStreamCaptureStatus)answer;
	return error;
}

STREAM_API(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
	   is_capturing(stream, status))

/* The long form of the question. From 13 on the driver's plain name tells of edges, too, of which no capture has any. */
static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
				cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *count)
{
	CUstreamCaptureStatus answer = CU_STREAM_CAPTURE_STATUS_NONE;
	cudaError_t error = is_capturing(stream, status);

	if (error == cudaSuccess && *status == cudaStreamCaptureStatusNone) {
		if (id)
			*id = 0;
		if (graph)
			*graph = NULL;
		if (dependencies)
			*dependencies = NULL;
		if (count)
			*count = 0;
		return cudaSuccess;
	}
	if (error != cudaSuccess)
		return error;
#if CUDART_VERSION >= 13000
	return RT_CALL(cuStreamGetCaptureInfo, stream, &answer, (cuuint64_t *)id, graph, dependencies, NULL, count);
#else
	return RT_CALL(cuStreamGetCaptureInfo, stream, &answer, (cuuint64_t *)id, graph, dependencies, count);
#endif
}

/* 12 has this call three times, with ever more to tell; from 13 on, the last has the plain name. */
#undef cudaStreamGetCaptureInfo
#if CUDART_VERSION >= 13000
#define LAST_CAPTURE_INFO cudaStreamGetCaptureInfo
#else
#define LAST_CAPTURE_INFO cudaStreamGetCaptureInfo_v3
STREAM_API(cudaStreamGetCaptureInfo,
	   (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
	   capture_info(stream, status, id, NULL, NULL, NULL))
STREAM_API(cudaStreamGetCaptureInfo_v2,
	   (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
	    const cudaGraphNode_t **dependencies, size_t *count),
	   capture_info(stream, status, id, graph, dependencies, count))
#endif

/* Expanded before it is pasted to its suffix. */
#define STREAM_API_(name, params, body) STREAM_API(name, params, body)
STREAM_API_(LAST_CAPTURE_INFO,
	    (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
	     const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count),
	    (edges ? (void)(*edges = NULL) : (void)0, capture_info(stream, status, id, graph, dependencies, count)))

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	return rt_done(mode ? RT_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode) :
			      cudaErrorInvalidValue);
}

/* The runtime's callback differs from the driver's in the type of its status. */
struct callback {
	cudaStreamCallback_t function;
	void *user_data;
};

static void CUDA_CB run_callback(CUstream stream, CUresult status, void *data)
{
	struct callback callback = *(struct callback *)data;

	free(data);
	callback.function(stream, rt_error(status), callback.user_data);
}

static cudaError_t add_callback(cudaStream_t stream, cudaStreamCallback_t function, void *user_data,
				unsigned int flags)
{
	struct callback *callback;
	cudaError_t error;

	if (!function || flags)
		return cudaErrorInvalidValue;
	callback = malloc(sizeof(*callback));
	if (!callback)
		return cudaErrorMemoryAllocation;
	*callback = (struct callback){ function, user_data };
	error = RT_CALL(cuStreamAddCallback, stream, run_callback, callback, 0);
	if (error != cudaSuccess)
		free(callback);
	return error;
}

STREAM_API(cudaStreamAddCallback,
	   (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags),
	   add_callback(stream, callback, userData, flags))
