/* SPDX-License-Identifier: Apache-2.0 */
/* Events. */
#include "runtime.h"

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	return rt_done(event ? RT_CALL(cuEventCreate, event, flags) : cudaErrorInvalidValue);
}

API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return rt_done(event ? RT_CALL(cuEventCreate, event, CU_EVENT_DEFAULT) : cudaErrorInvalidValue);
}

API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	return rt_done(event ? RT_CALL(cuEventDestroy, event) : cudaErrorInvalidResourceHandle);
}

STREAM_API(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
	   event ? RT_CALL(cuEventRecord, event, stream) : cudaErrorInvalidResourceHandle)
STREAM_API(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
	   event ? RT_CALL(cuEventRecordWithFlags, event, stream, flags) : cudaErrorInvalidResourceHandle)

API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return rt_done(event ? RT_CALL(cuEventQuery, event) : cudaErrorInvalidResourceHandle);
}

API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	return rt_done(event ? RT_CALL(cuEventSynchronize, event) : cudaErrorInvalidResourceHandle);
}

static cudaError_t elapsed(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	if (!ms)
		return cudaErrorInvalidValue;
	if (!start || !end)
		return cudaErrorInvalidResourceHandle;
	return RT_CALL(cuEventElapsedTime, ms, start, end);
}

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	return rt_done(elapsed(ms, start, end));
}

#if CUDART_VERSION < 13000
API cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	return rt_done(elapsed(ms, start, end));
}
#endif
