/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools, and what is allocated in the order of a stream. A pool is of a device and outlives contexts. Which of them a
 * device allocates from is known here only: the worker is told the pool with each allocation.
 */
#include <cuda_rules.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "graph_allocations.h"
#include "shareable.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	_Atomic uint64_t initial; /* the device's own; 0: not asked for yet */
	_Atomic uint64_t current; /* 0: the device's own */
} pools[SHIM_DEVICES_MAX];

static CUresult find_pool(CUmemoryPool handle, struct shim_object **pool)
{
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	*pool = shim_object_get(SHIM_POOL, (uint64_t)handle);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult count_devices(int *devices)
{
	uint32_t count;
	CUresult r = shim_device_count(&count);

	*devices = (int)count;
	return r;
}

/* Ends a handle's making: on failure the worker has nothing under it. */
static CUresult publish(CUresult r, struct shim_object *o, uint64_t id, const struct shim_object *made)
{
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_POOL, id);
		return r;
	}
	o->pool = made->pool;
	shim_object_publish(o, id);
	return CUDA_SUCCESS;
}

static CUresult ask_initial(CUdevice device, uint64_t *id)
{
	SHIM_TURN(turn, shim_turn_to(device));
	struct vg_pool_default_request in = { .ordinal = turn.ordinal };
	const struct shim_object made = { .pool = { .device = device, .initial = true } };
	struct shim_object *o = shim_object_new(SHIM_POOL, 0, &in.created);

	*id = in.created;
	return o ? publish(vg_send_pool_default(&in), o, in.created, &made) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult get_initial(CUdevice device, uint64_t *id)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	*id = pools[device].initial;
	if (!*id)
		r = ask_initial(device, id);
	if (r == CUDA_SUCCESS)
		pools[device].initial = *id;
	pthread_mutex_unlock(&lock);
	return r;
}

static CUresult get_pool(CUmemoryPool *out, CUdevice device, bool current)
{
	const struct shim_device *d;
	uint64_t id = 0;
	CUresult r = out ? shim_device(device, &d) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS && current)
		id = pools[device].current;
	if (r == CUDA_SUCCESS && !id)
		r = get_initial(device, &id);
	if (r == CUDA_SUCCESS)
		*out = (CUmemoryPool)id;
	return r;
}

SHIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	return get_pool(pool_out, dev, false);
}

SHIM_API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return get_pool(pool, dev, true);
}

SHIM_API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	const struct shim_device *d;
	struct shim_object *o;
	CUresult r = shim_device(dev, &d);

	if (r == CUDA_SUCCESS)
		r = find_pool(pool, &o);
	if (r == CUDA_SUCCESS && (o->pool.device != dev || o->pool.imported))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		pools[dev].current = o->pool.initial ? 0 : (uint64_t)pool;
	return r;
}

SHIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? get_pool(pool_out, location->id, false) : r;
}

SHIM_API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? get_pool(pool, location->id, true) : r;
}

SHIM_API CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : r;
}

SHIM_API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_pool_create_shareable_request shareable = { 0 };
	struct vg_pool_create_request in = { 0 };
	struct shim_object made = { .pool = { 0 } };
	const struct shim_device *d;
	struct shim_object *o;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = pool ? cuda_check_pool_properties(poolProps) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported(poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE ?
						"cuMemPoolCreate for handles other than descriptors" :
						"cuMemPoolCreate of a pool of the host's memory",
					&told);
	if (r == CUDA_SUCCESS)
		r = shim_device(poolProps->location.id, &d);
	if (r != CUDA_SUCCESS)
		return r;
	SHIM_TURN(turn, shim_turn_to(poolProps->location.id));
	in.ordinal = turn.ordinal;
	in.most_bytes = poolProps->maxSize;
	o = shim_object_new(SHIM_POOL, 0, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made.pool.device = poolProps->location.id;
	made.pool.shareable = poolProps->handleTypes;
	shareable = (struct vg_pool_create_shareable_request){ .created = in.created, .ordinal = in.ordinal, .most_bytes = in.most_bytes };
	r = made.pool.shareable ? vg_send_pool_create_shareable(&shareable) : vg_send_pool_create(&in);
	r = publish(r, o, in.created, &made);
	if (r == CUDA_SUCCESS)
		*pool = (CUmemoryPool)in.created;
	return r;
}

SHIM_API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	struct vg_pool_destroy_request in = { .pool = (uint64_t)pool };
	uint64_t id = in.pool;
	struct shim_object *o;
	CUresult r = find_pool(pool, &o);

	if (r == CUDA_SUCCESS && (o->pool.initial || !shim_object_retire(o, id)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	atomic_compare_exchange_strong(&pools[o->pool.device].current, &id, 0);
	r = vg_send_pool_destroy(&in);
	shim_object_recycle(SHIM_POOL, in.pool);
	return r;
}

/* ---- what a pool is */

SHIM_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct vg_cuMemPoolTrimTo_request in = { .pool = (uint64_t)pool, .minBytesToKeep = minBytesToKeep };
	struct shim_object *o;
	CUresult r = find_pool(pool, &o);

	return r == CUDA_SUCCESS ? vg_send_cuMemPoolTrimTo(&in) : r;
}

static CUresult check_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value, size_t *size)
{
	struct shim_object *o;
	CUresult r = find_pool(pool, &o);

	*size = cuda_pool_attribute_size(attribute);
	return r == CUDA_SUCCESS && !(value && *size) ? CUDA_ERROR_INVALID_VALUE : r;
}

SHIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct vg_pool_get_request in = { .pool = (uint64_t)pool, .attribute = attr };
	struct vg_pool_get_reply out;
	size_t size;
	CUresult r = check_attribute(pool, attr, value, &size);

	if (r == CUDA_SUCCESS)
		r = vg_send_pool_get(&in, &out);
	if (r == CUDA_SUCCESS)
		memcpy(value, &out.value, size);
	return r;
}

SHIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct vg_pool_set_request in = { .pool = (uint64_t)pool, .attribute = attr };
	size_t size;
	CUresult r = check_attribute(pool, attr, value, &size);

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&in.value, value, size);
	return vg_send_pool_set(&in);
}

/* No device gets at another one's memory: each is another session's. */
static struct cuda_reach reach_of(const struct shim_object *pool, int devices)
{
	const uint32_t own = UINT32_C(1) << pool->pool.device;

	return (struct cuda_reach){ pool->pool.device, devices, own, own };
}

SHIM_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	struct shim_object *o;
	struct cuda_reach reach;
	int devices = 0;
	CUresult r = find_pool(pool, &o);

	if (r == CUDA_SUCCESS)
		r = count_devices(&devices);
	if (r != CUDA_SUCCESS)
		return r;
	reach = reach_of(o, devices);
	return cuda_set_pool_access(map, count, &reach);
}

SHIM_API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	struct shim_object *o;
	struct cuda_reach reach;
	int devices = 0;
	CUresult r = find_pool(memPool, &o);

	if (r == CUDA_SUCCESS)
		r = count_devices(&devices);
	if (r != CUDA_SUCCESS)
		return r;
	reach = reach_of(o, devices);
	return cuda_read_pool_access(location, &reach, flags);
}

/* ---- between processes: ipc.c has what is allocated from pools */

SHIM_API CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
						   unsigned long long flags)
{
	struct vg_pool_export_request in = { .pool = (uint64_t)pool };
	struct vg_pool_export_reply out;
	struct shim_object *o;
	CUresult r = find_pool(pool, &o);

	if (r == CUDA_SUCCESS)
		r = cuda_check_export(handle_out, handleType, flags);
	if (r == CUDA_SUCCESS && !o->pool.shareable)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	shim_ipc_begin();
	r = vg_send_pool_export(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	return shim_shareable_make(SHIM_SHAREABLE_POOL, o->pool.device, in.pool, out.token, out.token_length, handle_out);
}

SHIM_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
						     unsigned long long flags)
{
	struct vg_pool_import_request in = { 0 };
	struct shim_object made = { .pool = { .imported = true } }, *o;
	struct shim_shareable from;
	CUdevice device;
	bool own;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = cuda_check_import(pool_out, handle, handleType, flags);
	if (r == CUDA_SUCCESS)
		r = shim_shareable_read(handle, SHIM_SHAREABLE_POOL, &from, &device, &own);
	if (r == CUDA_SUCCESS && own)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	SHIM_TURN(turn, shim_turn_to(device));
	made.pool.device = device;
	in.token = (struct vg_bytes){ from.token, sizeof(from.token) };
	o = shim_object_new(SHIM_POOL, 0, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shim_ipc_begin();
	r = publish(shim_shareable_result(vg_send_pool_import(&in)), o, in.created, &made);
	if (r == CUDA_SUCCESS)
		*pool_out = (CUmemoryPool)in.created;
	return r;
}

/* ---- allocations */

/* From a pool, or (0) from the one that the device allocates from. */
struct ordered {
	uint64_t context, bytes, pool, stream;
};

static CUresult allocate(void *what, struct shim_range *got)
{
	const struct ordered *o = what;
	struct vg_pool_allocate_request from = { .context = o->context, .bytes = o->bytes, .pool = o->pool, .stream = o->stream };
	struct vg_memory_allocate_async_request in = { .context = o->context, .bytes = o->bytes, .stream = o->stream };
	struct vg_memory_allocate_async_reply out;
	struct vg_pool_allocate_reply out_of;
	CUresult r;

	if (o->pool) {
		r = vg_send_pool_allocate(&from, &out_of);
		got->start = out_of.address;
		return r;
	}
	r = vg_send_memory_allocate_async(&in, &out);
	got->start = out.address;
	return r;
}

static CUresult allocate_async(CUdeviceptr *out, size_t bytes, const struct shim_object *from, uint64_t pool, CUstream handle)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct ordered o = { .bytes = bytes, .pool = pool };
	struct shim_range got = { .bytes = bytes, .pooled = true };
	bool captures = false;
	CUdevice device;
	CUresult r = shim_enter(&o.context);

	if (r == CUDA_SUCCESS && (!out || !bytes))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_stream(handle, &o.context, &o.stream);
	if (r == CUDA_SUCCESS)
		captures = shim_capturing(o.context, o.stream, &r);
	if (r == CUDA_SUCCESS)
		r = cuCtxGetDevice_v2(&device, (CUcontext)o.context);
	if (r == CUDA_SUCCESS && from && from->pool.imported)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && from && from->pool.device != device)
		r = shim_unsupported("cuMemAllocFromPoolAsync from a pool of another device than the stream's", &told);
	if (r == CUDA_SUCCESS && captures)
		return shim_capture_allocation(handle, o.stream, o.context, device, bytes, out);
	if (r == CUDA_SUCCESS && !pool)
		o.pool = pools[device].current;
	got.context = o.context;
	got.pool = o.pool;
	if (r == CUDA_SUCCESS)
		r = shim_allocate(&got, allocate, &o);
	if (r == CUDA_SUCCESS)
		*out = got.start;
	return r;
}

SHIM_API CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate_async(dptr, bytesize, NULL, 0, hStream);
}

SHIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return cuMemAllocAsync(dptr, bytesize, hStream ? hStream : CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	struct shim_object *o;
	CUresult r = find_pool(pool, &o);

	return r == CUDA_SUCCESS ? allocate_async(dptr, bytesize, o, (uint64_t)pool, hStream) : r;
}

SHIM_API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	return cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream ? hStream : CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct vg_memory_free_async_request in = { .address = dptr };
	struct graph_block *ended;
	struct shim_range range;
	bool captured = false;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = shim_capturing(in.context, in.stream, &r) ? shim_capture_free(hStream, in.stream, in.context, dptr, &captured) : r;
	if (r != CUDA_SUCCESS || !dptr || captured)
		return r;
	if (!shim_range_find(SHIM_RANGE_DEVICE, dptr, &range) || range.managed)
		return CUDA_ERROR_INVALID_VALUE;
	if (range.opened && range.pooled) {
		r = cuStreamSynchronize(hStream);
		return r == CUDA_SUCCESS ? shim_ipc_close(dptr, true) : r;
	}
	/* on a stream of the device that has it */
	if (range.channel != shim_channel_of(in.context))
		return CUDA_ERROR_INVALID_VALUE;
	if (graph_block_free(dptr, &r, &ended) && !ended)
		return r;
	free(ended);
	if (!shim_take_allocation(dptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	return vg_send_memory_free_async(&in);
}

SHIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return cuMemFreeAsync(dptr, hStream ? hStream : CU_STREAM_PER_THREAD);
}
