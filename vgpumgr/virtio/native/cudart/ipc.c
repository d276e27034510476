/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events between processes. */
#include "runtime.h"

#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "handles of memory");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "handles of events");
_Static_assert((int)cudaIpcMemLazyEnablePeerAccess == (int)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, "flags");

API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
	return rt_done(handle ? RT_CALL(cuIpcGetMemHandle, (CUipcMemHandle *)handle, (CUdeviceptr)devPtr) : cudaErrorInvalidValue);
}

static cudaError_t open_memory(void **devPtr, const cudaIpcMemHandle_t *handle, unsigned int flags)
{
	CUipcMemHandle of_driver;
	CUdeviceptr address = 0;
	cudaError_t error;

	if (!devPtr)
		return cudaErrorInvalidValue;
	memcpy(&of_driver, handle, sizeof(of_driver));
	error = RT_CALL(cuIpcOpenMemHandle, &address, of_driver, flags);
	if (error == cudaSuccess)
		*devPtr = (void *)address;
	return error;
}

API cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)
{
	return rt_done(open_memory(devPtr, &handle, flags));
}

API cudaError_t cudaIpcCloseMemHandle(void *devPtr)
{
	return rt_done(RT_CALL(cuIpcCloseMemHandle, (CUdeviceptr)devPtr));
}

API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	if (!handle)
		return rt_done(cudaErrorInvalidValue);
	return rt_done(event ? RT_CALL(cuIpcGetEventHandle, (CUipcEventHandle *)handle, event) : cudaErrorInvalidResourceHandle);
}

static cudaError_t open_event(cudaEvent_t *event, const cudaIpcEventHandle_t *handle)
{
	CUipcEventHandle of_driver;

	memcpy(&of_driver, handle, sizeof(of_driver));
	return event ? RT_CALL(cuIpcOpenEventHandle, event, of_driver) : cudaErrorInvalidValue;
}

API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	return rt_done(open_event(event, &handle));
}
