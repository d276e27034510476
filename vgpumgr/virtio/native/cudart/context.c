/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, the devices' primary contexts and which one a thread works on. */
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime.h"

struct device {
	CUdevice handle;
	CUcontext primary; /* as last seen, even when released: other threads may still have it current */
	bool retained;
};

static struct device *devices;
static int n_devices;
static atomic_bool ready;
/* Some primary context was released: a current context need not be alive any more. */
static atomic_bool some_released;

static __thread int thread_device = -1; /* -1: not chosen */
static __thread int first_valid_device; /* cudaSetValidDevices(): what a thread without a choice gets */

static cudaError_t list_devices(void)
{
	struct device *list;
	int count = 0;
	CUresult err = CU(cuDeviceGetCount, &count);

	if (err != CUDA_SUCCESS)
		return rt_error(err);
	list = calloc((size_t)count + 1, sizeof(*list));
	if (!list)
		return cudaErrorMemoryAllocation;
	for (int i = 0; i < count && err == CUDA_SUCCESS; i++)
		err = CU(cuDeviceGet, &list[i].handle, i);
	if (err != CUDA_SUCCESS) {
		free(list);
		return rt_error(err);
	}
	devices = list;
	n_devices = count;
	return cudaSuccess;
}

static cudaError_t initialise(void)
{
	CUresult err;
	int version = 0;

	if (driver_load())
		return cudaErrorInsufficientDriver;
	err = CU(cuInit, 0);
	if (err != CUDA_SUCCESS)
		return rt_error(err);
	/* Any driver of our major version will do: minor versions are compatible both ways. */
	err = CU(cuDriverGetVersion, &version);
	if (err != CUDA_SUCCESS)
		return rt_error(err);
	if (version < CUDART_VERSION / 1000 * 1000)
		return cudaErrorInsufficientDriver;
	return list_devices();
}

cudaError_t rt_init(void)
{
	cudaError_t error = cudaSuccess;

	if (atomic_load_explicit(&ready, memory_order_acquire))
		return cudaSuccess;
	rt_lock();
	if (!atomic_load_explicit(&ready, memory_order_relaxed)) {
		error = initialise();
		atomic_store_explicit(&ready, error == cudaSuccess, memory_order_release);
	}
	rt_unlock();
	return error;
}

cudaError_t rt_device(int ordinal, CUdevice *out)
{
	cudaError_t error = rt_init();

	if (error != cudaSuccess)
		return error;
	if (ordinal < 0 || ordinal >= n_devices)
		return n_devices ? cudaErrorInvalidDevice : cudaErrorNoDevice;
	*out = devices[ordinal].handle;
	return cudaSuccess;
}

int rt_ordinal(CUdevice device)
{
	for (int i = 0; i < n_devices; i++)
		if (devices[i].handle == device)
			return i;
	return -1;
}

/* Under the lock. */
static cudaError_t retain(struct device *device)
{
	CUresult err;

	if (device->retained)
		return cudaSuccess;
	err = CU(cuDevicePrimaryCtxRetain, &device->primary, device->handle);
	device->retained = err == CUDA_SUCCESS;
	return rt_error(err);
}

cudaError_t rt_primary(int ordinal, CUcontext *out)
{
	CUdevice handle;
	cudaError_t error = rt_device(ordinal, &handle);

	if (error != cudaSuccess)
		return error;
	rt_lock();
	error = retain(&devices[ordinal]);
	*out = devices[ordinal].primary;
	rt_unlock();
	return error;
}

/* Makes a device's primary context the calling thread's. */
static cudaError_t bind(int ordinal)
{
	CUcontext primary;
	cudaError_t error = rt_primary(ordinal, &primary);

	return error != cudaSuccess ? error : rt_error(CU(cuCtxSetCurrent, primary));
}

/* The current context is a primary one that a reset has destroyed, perhaps in another thread. */
static bool is_released(CUcontext context)
{
	bool released = false;

	if (!atomic_load_explicit(&some_released, memory_order_acquire))
		return false;
	rt_lock();
	for (int i = 0; i < n_devices; i++)
		released |= devices[i].primary == context && !devices[i].retained;
	rt_unlock();
	return released;
}

static int default_device(void)
{
	return thread_device >= 0 ? thread_device : first_valid_device;
}

cudaError_t rt_enter(void)
{
	cudaError_t error = rt_init();
	CUcontext current = NULL;

	if (error != cudaSuccess)
		return error;
	error = rt_error(CU(cuCtxGetCurrent, &current));
	if (error != cudaSuccess)
		return error;
	if (current && !is_released(current))
		return cudaSuccess;
	return bind(default_device());
}

cudaError_t rt_context_key(uint64_t *key)
{
	CUcontext current = NULL;
	unsigned long long id = 0;
	cudaError_t error = rt_error(CU(cuCtxGetCurrent, &current));

	if (error != cudaSuccess)
		return error;
	/* Ids are never used again, handles may be; a driver without ids leaves us the handle. */
	*key = CU(cuCtxGetId, current, &id) == CUDA_SUCCESS ? id : (uint64_t)(uintptr_t)current;
	return cudaSuccess;
}

/* The ordinal that the thread works on; needs no context. */
static cudaError_t current_ordinal(int *out)
{
	cudaError_t error = rt_init();
	CUcontext current = NULL;
	CUdevice device;

	if (error != cudaSuccess)
		return error;
	*out = default_device();
	if (CU(cuCtxGetCurrent, &current) != CUDA_SUCCESS || !current || is_released(current))
		return cudaSuccess;
	error = rt_error(CU(cuCtxGetDevice, &device));
	if (error == cudaSuccess)
		*out = rt_ordinal(device);
	return error;
}

cudaError_t rt_current_device(CUdevice *out)
{
	int ordinal;
	cudaError_t error = current_ordinal(&ordinal);

	return error != cudaSuccess ? error : rt_device(ordinal, out);
}

static cudaError_t device_count(int *count)
{
	cudaError_t error;

	if (!count)
		return cudaErrorInvalidValue;
	*count = 0;
	error = rt_init();
	if (error != cudaSuccess)
		return error;
	*count = n_devices;
	return n_devices ? cudaSuccess : cudaErrorNoDevice;
}

API cudaError_t cudaGetDeviceCount(int *count)
{
	return rt_done(device_count(count));
}

API cudaError_t cudaGetDevice(int *device)
{
	return rt_done(device ? current_ordinal(device) : cudaErrorInvalidValue);
}

/* Since 12 this also initialises the device. */
static cudaError_t set_device(int ordinal)
{
	CUdevice handle;
	cudaError_t error = rt_device(ordinal, &handle);

	if (error != cudaSuccess)
		return error;
	thread_device = ordinal;
	return bind(ordinal);
}

API cudaError_t cudaSetDevice(int device)
{
	return rt_done(set_device(device));
}

static cudaError_t set_valid_devices(const int *list, int count)
{
	CUdevice handle;

	if (count < 0 || (count && !list))
		return cudaErrorInvalidValue;
	for (int i = 0; i < count; i++) {
		cudaError_t error = rt_device(list[i], &handle);

		if (error != cudaSuccess)
			return error;
	}
	first_valid_device = count ? list[0] : 0;
	return cudaSuccess;
}

API cudaError_t cudaSetValidDevices(int *device_arr, int len)
{
	return rt_done(set_valid_devices(device_arr, len));
}

/* Scheduling bits; host mapping is always on, and "sync memops" and the rest pass as they are. */
static unsigned int driver_flags(unsigned int flags)
{
	return flags & ~(unsigned int)cudaDeviceMapHost;
}

static cudaError_t set_flags(int ordinal, unsigned int flags)
{
	CUdevice device;
	cudaError_t error = rt_device(ordinal, &device);

	if (error == cudaSuccess && flags & ~(unsigned int)cudaDeviceMask)
		error = cudaErrorInvalidValue;
	if (error != cudaSuccess)
		return error;
	return rt_error(CU(cuDevicePrimaryCtxSetFlags, device, driver_flags(flags)));
}

static cudaError_t set_current_flags(unsigned int flags)
{
	int ordinal;
	cudaError_t error = current_ordinal(&ordinal);

	return error != cudaSuccess ? error : set_flags(ordinal, flags);
}

API cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	return rt_done(set_current_flags(flags));
}

static cudaError_t get_flags(unsigned int *flags)
{
	CUdevice device;
	CUcontext current = NULL;
	int active;
	cudaError_t error = flags ? rt_current_device(&device) : cudaErrorInvalidValue;

	if (error != cudaSuccess)
		return error;
	if (CU(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current)
		error = rt_error(CU(cuCtxGetFlags, flags));
	else
		error = rt_error(CU(cuDevicePrimaryCtxGetState, device, flags, &active));
	*flags |= cudaDeviceMapHost;
	return error;
}

API cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
	return rt_done(get_flags(flags));
}

static cudaError_t init_device(int ordinal, unsigned int device_flags, unsigned int flags)
{
	CUcontext primary;
	cudaError_t error = cudaSuccess;

	if (flags & ~(unsigned int)cudaInitDeviceFlagsAreValid)
		return cudaErrorInvalidValue;
	if (flags & cudaInitDeviceFlagsAreValid)
		error = set_flags(ordinal, device_flags);
	return error != cudaSuccess ? error : rt_primary(ordinal, &primary);
}

API cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
	return rt_done(init_device(device, deviceFlags, flags));
}

/* Under the lock; leaves the device without a primary context of ours. */
static CUresult release(struct device *device)
{
	if (device->retained) {
		device->retained = false;
		atomic_store_explicit(&some_released, true, memory_order_release);
		CU(cuDevicePrimaryCtxRelease, device->handle);
	}
	return CU(cuDevicePrimaryCtxReset, device->handle);
}

/* What was loaded into a primary context goes with it; the next use of the device starts afresh. */
static cudaError_t forget_primary(CUcontext primary, void (*forget)(uint64_t key))
{
	uint64_t key;
	CUcontext popped;
	cudaError_t error = rt_error(CU(cuCtxPushCurrent, primary));

	if (error != cudaSuccess)
		return error;
	error = rt_context_key(&key);
	if (error == cudaSuccess)
		forget(key);
	CU(cuCtxPopCurrent, &popped);
	return error;
}

cudaError_t rt_reset(void (*forget)(uint64_t key))
{
	int ordinal;
	bool retained;
	CUcontext current = NULL;
	cudaError_t error = current_ordinal(&ordinal);

	if (error != cudaSuccess || !n_devices)
		return error;
	rt_lock();
	retained = devices[ordinal].retained;
	rt_unlock();
	if (retained)
		(void)!forget_primary(devices[ordinal].primary, forget);
	if (CU(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current == devices[ordinal].primary)
		CU(cuCtxSetCurrent, NULL);
	rt_lock();
	error = rt_error(release(&devices[ordinal]));
	rt_unlock();
	rt_forget_error();
	return error;
}

API cudaError_t cudaDeviceSynchronize(void)
{
	return rt_done(RT_CALL(cuCtxSynchronize));
}

API cudaError_t cudaDriverGetVersion(int *driverVersion)
{
	cudaError_t error = cudaSuccess;

	if (!driverVersion)
		return rt_done(cudaErrorInvalidValue);
	rt_lock();
	*driverVersion = 0; /* as documented where there is no driver */
	if (!driver_load())
		error = rt_error(CU(cuDriverGetVersion, driverVersion));
	rt_unlock();
	return rt_done(error);
}

/*
 * Not newer than the driver: this library offers what the driver below it does, and programs refuse to run on a runtime that
 * says more. Without a driver, or over one of a former major version, it is what it was made for.
 */
API cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
	int below = 0;

	if (!runtimeVersion)
		return rt_done(cudaErrorInvalidValue);
	*runtimeVersion = CUDART_VERSION;
	rt_lock();
	if (!driver_load() && CU(cuDriverGetVersion, &below) == CUDA_SUCCESS && below < CUDART_VERSION &&
	    below / 1000 == CUDART_VERSION / 1000)
		*runtimeVersion = below;
	rt_unlock();
	return cudaSuccess;
}
