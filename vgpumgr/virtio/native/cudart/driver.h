/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver below us: whatever libcuda.so.1 the loader finds (NVIDIA's, a forwarding shim, a simulator). Only documented
 * entry points are used, by the names that cuda.h gives them, so all three are the same to us.
 */
#ifndef VGPUMGR_CUDART_DRIVER_H
#define VGPUMGR_CUDART_DRIVER_H

#include <cuda.h>
#include <stdatomic.h>

/* cuda.h maps most of these to a versioned name (cuMemAlloc_v2): the table takes type, field and symbol from the mapping. */
#define DRIVER_CALLS(X)                                                                                          \
	X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuGetProcAddress)                \
	X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem)             \
	X(cuDeviceGetAttribute) X(cuDeviceGetByPCIBusId) X(cuDeviceGetPCIBusId) X(cuDeviceGetP2PAttribute)       \
	X(cuDeviceCanAccessPeer) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)                              \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset)                      \
	X(cuDevicePrimaryCtxSetFlags) X(cuDevicePrimaryCtxGetState)                                              \
	X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice)           \
	X(cuCtxGetId) X(cuCtxGetFlags) X(cuCtxSynchronize) X(cuCtxSetLimit) X(cuCtxGetLimit)                     \
	X(cuCtxSetCacheConfig) X(cuCtxGetCacheConfig) X(cuCtxSetSharedMemConfig) X(cuCtxGetSharedMemConfig)      \
	X(cuCtxGetStreamPriorityRange) X(cuCtxResetPersistingL2Cache)                                            \
	X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal)                        \
	X(cuLibraryLoadData) X(cuLibraryLoadFromFile) X(cuLibraryUnload) X(cuLibraryGetKernel)                   \
	X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels) X(cuLibraryGetGlobal) X(cuLibraryGetManaged)     \
	X(cuKernelGetFunction) X(cuKernelGetName)                                        \
	X(cuLinkCreate) X(cuLinkAddData) X(cuLinkComplete) X(cuLinkDestroy)                                      \
	X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncSetSharedMemConfig)          \
	X(cuFuncGetParamInfo) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel)                 \
	X(cuLaunchHostFunc) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                       \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuOccupancyAvailableDynamicSMemPerBlock)       \
	X(cuOccupancyMaxPotentialClusterSize) X(cuOccupancyMaxActiveClusters)                                    \
	X(cuMemGetInfo) X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost)         \
	X(cuMemAllocManaged) X(cuMemAdvise) X(cuMemPrefetchAsync) X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes) \
	X(cuStreamAttachMemAsync)                                                                                \
	X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuMemHostGetFlags)            \
	X(cuPointerGetAttributes) X(cuPointerGetAttribute)                                                       \
	X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoH) X(cuMemcpyDtoHAsync)   \
	X(cuMemcpyDtoD) X(cuMemcpyDtoDAsync) X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemcpyBatchAsync)          \
	X(cuMemcpy3DBatchAsync)                                                                                  \
	X(cuMemcpy2DUnaligned) X(cuMemcpy2DAsync) X(cuMemcpy3D) X(cuMemcpy3DAsync)                               \
	X(cuMemsetD8) X(cuMemsetD8Async) X(cuMemsetD2D8) X(cuMemsetD2D8Async)                                    \
	X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuDeviceGetDefaultMemPool)             \
	X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo)    \
	X(cuMemPoolSetAttribute) X(cuMemPoolGetAttribute) X(cuMemPoolSetAccess) X(cuMemPoolGetAccess)            \
	X(cuMemPoolExportToShareableHandle) X(cuMemPoolImportFromShareableHandle) X(cuMemPoolExportPointer)      \
	X(cuMemPoolImportPointer)                                                                                \
	X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery)                      \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamAddCallback) X(cuStreamGetFlags)                   \
	X(cuStreamGetPriority) X(cuStreamGetId) X(cuStreamGetCtx) X(cuStreamIsCapturing)                         \
	X(cuLogsRegisterCallback) X(cuLogsUnregisterCallback) X(cuLogsCurrent) X(cuLogsDumpToFile)               \
	X(cuLogsDumpToMemory) X(cuStreamCopyAttributes) X(cuStreamGetAttribute) X(cuStreamSetAttribute)                                \
	X(cuThreadExchangeStreamCaptureMode)                                                                     \
	X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphNodeGetType) \
	X(cuGraphGetNodes) X(cuGraphGetRootNodes) X(cuGraphGetEdges) X(cuGraphNodeGetDependencies) \
	X(cuGraphNodeGetDependentNodes) X(cuGraphAddDependencies) X(cuGraphRemoveDependencies) \
	X(cuGraphDestroyNode) X(cuGraphAddKernelNode) X(cuGraphKernelNodeSetParams) \
	X(cuGraphExecKernelNodeSetParams) X(cuGraphAddMemcpyNode) X(cuGraphMemcpyNodeSetParams) \
	X(cuGraphExecMemcpyNodeSetParams) X(cuGraphAddMemsetNode) X(cuGraphMemsetNodeSetParams) \
	X(cuGraphExecMemsetNodeSetParams) X(cuGraphAddHostNode) X(cuGraphHostNodeGetParams) \
	X(cuGraphHostNodeSetParams) X(cuGraphExecHostNodeSetParams) X(cuGraphAddEmptyNode) \
	X(cuGraphAddChildGraphNode) X(cuGraphChildGraphNodeGetGraph) X(cuGraphAddEventRecordNode) \
	X(cuGraphAddEventWaitNode) X(cuGraphEventRecordNodeGetEvent) X(cuGraphEventWaitNodeGetEvent) \
	X(cuGraphEventRecordNodeSetEvent) X(cuGraphEventWaitNodeSetEvent) \
	X(cuGraphExecEventRecordNodeSetEvent) X(cuGraphExecEventWaitNodeSetEvent) \
	X(cuGraphInstantiateWithFlags) X(cuGraphInstantiateWithParams) X(cuGraphLaunch) X(cuGraphUpload) \
	X(cuGraphExecDestroy) X(cuGraphExecGetFlags) X(cuUserObjectCreate) X(cuUserObjectRetain) X(cuUserObjectRelease) \
	X(cuGraphRetainUserObject) X(cuGraphReleaseUserObject) X(cuGraphExecUpdate) X(cuGraphNodeSetEnabled) \
	X(cuGraphNodeGetEnabled) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamGetCaptureInfo) \
	X(cuStreamUpdateCaptureDependencies) \
	X(cuGraphKernelNodeGetParams) X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams)                \
	X(cuGraphKernelNodeGetAttribute) X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeCopyAttributes)     \
	X(cuGraphExecChildGraphNodeSetParams) X(cuGraphDebugDotPrint) X(cuGraphAddNode_v2)                       \
	X(cuGraphAddMemAllocNode) X(cuGraphMemAllocNodeGetParams) X(cuGraphAddMemFreeNode) X(cuGraphMemFreeNodeGetParams) \
	X(cuDeviceGraphMemTrim) X(cuDeviceGetGraphMemAttribute) X(cuDeviceSetGraphMemAttribute)                  \
	X(cuGraphConditionalHandleCreate) X(cuGraphNodeSetParams) X(cuGraphExecNodeSetParams) X(cuStreamBeginCaptureToGraph)                                                      \
	X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventRecordWithFlags) X(cuEventQuery)            \
	X(cuEventSynchronize) X(cuEventElapsedTime)                                                              \
	X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle)                 \
	X(cuIpcOpenEventHandle)                                                                                  \
	X(cuArray3DCreate) X(cuArray3DGetDescriptor) X(cuArrayDestroy) X(cuMipmappedArrayCreate)                 \
	X(cuArrayGetPlane) X(cuArrayGetSparseProperties) X(cuArrayGetMemoryRequirements)                         \
	X(cuMipmappedArrayGetSparseProperties) X(cuMipmappedArrayGetMemoryRequirements)                          \
	X(cuMipmappedArrayGetLevel) X(cuMipmappedArrayDestroy) X(cuTexObjectCreate) X(cuTexObjectDestroy)        \
	X(cuTexObjectGetResourceDesc) X(cuTexObjectGetTextureDesc) X(cuSurfObjectCreate) X(cuSurfObjectDestroy)  \
	X(cuSurfObjectGetResourceDesc) X(cuDeviceGetTexture1DLinearMaxWidth) DRIVER_CALLS_OF_VERSION(X)

/* Edges with data have names of their own until 13; graphs have numbers from then on, and batches are of more than copies. */
#if CUDA_VERSION >= 13000
#define DRIVER_CALLS_OF_VERSION(X)                                                                               \
	X(cuGraphNodeGetParams) X(cuGraphGetId) X(cuGraphExecGetId) X(cuGraphNodeGetContainingGraph)             \
	X(cuGraphNodeGetLocalId) X(cuGraphNodeGetToolsId)                                         \
	X(cuMemGetDefaultMemPool) X(cuMemGetMemPool) X(cuMemSetMemPool)                                          \
	X(cuMemPrefetchBatchAsync) X(cuMemDiscardBatchAsync) X(cuMemDiscardAndPrefetchBatchAsync)                \
	X(cuDeviceGetHostAtomicCapabilities) X(cuDeviceGetP2PAtomicCapabilities)
#else
#define DRIVER_CALLS_OF_VERSION(X)                                                                               \
	X(cuGraphGetEdges_v2) X(cuGraphNodeGetDependencies_v2) X(cuGraphNodeGetDependentNodes_v2)                \
	X(cuGraphAddDependencies_v2) X(cuGraphRemoveDependencies_v2) X(cuStreamUpdateCaptureDependencies_v2)    \
	X(cuMemAdvise_v2) X(cuMemPrefetchAsync_v2)
#endif

#define DRIVER_FIELD(name) __typeof__(&name) name;
struct driver {
	DRIVER_CALLS(DRIVER_FIELD)
};
#undef DRIVER_FIELD

/* Filled by driver_load(); a call that this driver does not have is NULL. */
extern struct driver driver;

/* A driver call; one that this driver does not have answers CUDA_ERROR_NOT_SUPPORTED. */
#define CU(name, ...) (driver.name ? driver.name(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

/*
 * The library's one lock: over the driver table, the devices' contexts and what is registered. It is free in the child
 * of a fork.
 */
void rt_lock(void);
void rt_unlock(void);

/* Under the lock: finds libcuda.so.1 and fills the table; safe to repeat. 0, or -ENOENT where there is no driver. */
int driver_load(void);
/* Has a driver of ours tell the user, and the host, that there is no such call; others have nothing to say. */
void driver_call_unsupported(const char *name, atomic_flag *said);

#endif
