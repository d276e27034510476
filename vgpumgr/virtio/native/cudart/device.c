/* SPDX-License-Identifier: Apache-2.0 */
/* Device queries and settings. Where the runtime's enumerators equal the driver's in number, a test says so. */
#include "runtime.h"

static cudaError_t get_attribute(int *value, enum cudaDeviceAttr attr, int ordinal)
{
	CUdevice device;
	cudaError_t error = value ? rt_device(ordinal, &device) : cudaErrorInvalidValue;

	return error != cudaSuccess ? error :
				      rt_error(CU(cuDeviceGetAttribute, value, (CUdevice_attribute)attr, device));
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	return rt_done(get_attribute(value, attr, device));
}

static cudaError_t by_bus_id(int *ordinal, const char *id)
{
	CUdevice device;
	cudaError_t error;

	if (!ordinal || !id)
		return cudaErrorInvalidValue;
	error = rt_init();
	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceGetByPCIBusId, &device, id));
	if (error == cudaSuccess)
		*ordinal = rt_ordinal(device);
	return error;
}

API cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
	return rt_done(by_bus_id(device, pciBusId));
}

static cudaError_t bus_id(char *id, int length, int ordinal)
{
	CUdevice device;
	cudaError_t error = id && length > 0 ? rt_device(ordinal, &device) : cudaErrorInvalidValue;

	return error != cudaSuccess ? error : rt_error(CU(cuDeviceGetPCIBusId, id, length, device));
}

API cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
	return rt_done(bus_id(pciBusId, len, device));
}

static cudaError_t two_devices(int a, int b, CUdevice *out_a, CUdevice *out_b)
{
	cudaError_t error = rt_device(a, out_a);

	return error != cudaSuccess ? error : rt_device(b, out_b);
}

static cudaError_t p2p_attribute(int *value, enum cudaDeviceP2PAttr attr, int a, int b)
{
	CUdevice from, to;
	cudaError_t error = value ? two_devices(a, b, &from, &to) : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	return rt_error(CU(cuDeviceGetP2PAttribute, value, (CUdevice_P2PAttribute)attr, from, to));
}

API cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int srcDevice, int dstDevice)
{
	return rt_done(p2p_attribute(value, attr, srcDevice, dstDevice));
}

#if CUDART_VERSION >= 13000
API cudaError_t cudaDeviceGetHostAtomicCapabilities(unsigned int *capabilities, const enum cudaAtomicOperation *operations,
						    unsigned int count, int device)
{
	CUdevice found;
	cudaError_t error = rt_init();

	if (error == cudaSuccess)
		error = rt_device(device, &found);
	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceGetHostAtomicCapabilities, capabilities, (const CUatomicOperation *)operations, count, found));
	return rt_done(error);
}

API cudaError_t cudaDeviceGetP2PAtomicCapabilities(unsigned int *capabilities, const enum cudaAtomicOperation *operations,
						   unsigned int count, int srcDevice, int dstDevice)
{
	CUdevice from, to;
	cudaError_t error = two_devices(srcDevice, dstDevice, &from, &to);

	if (error == cudaSuccess)
		error = rt_error(CU(cuDeviceGetP2PAtomicCapabilities, capabilities, (const CUatomicOperation *)operations, count, from, to));
	return rt_done(error);
}
#endif

static cudaError_t can_access_peer(int *can, int a, int b)
{
	CUdevice from, to;
	cudaError_t error = can ? two_devices(a, b, &from, &to) : cudaErrorInvalidValue;
	CUresult result;

	if (error != cudaSuccess)
		return error;
	*can = 0;
	result = CU(cuDeviceCanAccessPeer, can, from, to);
	/* a driver without peer access, such as a forwarded one: no is the whole answer */
	return result == CUDA_ERROR_NOT_SUPPORTED ? cudaSuccess : rt_error(result);
}

API cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
	return rt_done(can_access_peer(canAccessPeer, device, peerDevice));
}

static cudaError_t enable_peer(int peer, unsigned int flags)
{
	CUcontext context;
	cudaError_t error = rt_primary(peer, &context);

	return error != cudaSuccess ? error : RT_CALL(cuCtxEnablePeerAccess, context, flags);
}

API cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
	return rt_done(enable_peer(peerDevice, flags));
}

static cudaError_t disable_peer(int peer)
{
	CUcontext context;
	cudaError_t error = rt_primary(peer, &context);

	return error != cudaSuccess ? error : RT_CALL(cuCtxDisablePeerAccess, context);
}

API cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
	return rt_done(disable_peer(peerDevice));
}

API cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	return rt_done(RT_CALL(cuCtxSetLimit, (CUlimit)limit, value));
}

API cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
	return rt_done(pValue ? RT_CALL(cuCtxGetLimit, pValue, (CUlimit)limit) : cudaErrorInvalidValue);
}

API cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
	return rt_done(RT_CALL(cuCtxSetCacheConfig, (CUfunc_cache)cacheConfig));
}

API cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
	return rt_done(pCacheConfig ? RT_CALL(cuCtxGetCacheConfig, (CUfunc_cache *)pCacheConfig) :
				      cudaErrorInvalidValue);
}

API cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
	return rt_done(RT_CALL(cuCtxSetSharedMemConfig, (CUsharedconfig)config));
}

API cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *pConfig)
{
	return rt_done(pConfig ? RT_CALL(cuCtxGetSharedMemConfig, (CUsharedconfig *)pConfig) : cudaErrorInvalidValue);
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	return rt_done(RT_CALL(cuCtxGetStreamPriorityRange, leastPriority, greatestPriority));
}

API cudaError_t cudaCtxResetPersistingL2Cache(void)
{
	return rt_done(RT_CALL(cuCtxResetPersistingL2Cache));
}

/* The runtime is always ready to be profiled; there is nothing to switch. */
API cudaError_t cudaProfilerStart(void)
{
	return cudaSuccess;
}

API cudaError_t cudaProfilerStop(void)
{
	return cudaSuccess;
}
