/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: pools of memory that is allocated in the order of a stream. What comes from them is in the ledger. */
#include <stdatomic.h>

#include "transport/worker_limits.h"
#include "vg_worker.h"

CUresult wk_do_pool_default(struct wk_call *c, const struct vg_pool_default_request *in)
{
	struct wk_object *o;
	CUmemoryPool pool;
	CUdevice device;
	CUresult r = wk_driver.cuDeviceGet(&device, in->ordinal);

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuDeviceGetDefaultMemPool(&pool, device);
	if (r != CUDA_SUCCESS)
		return r;
	o = wk_object_new(WK_POOL, NULL, pool, 0);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->lent = true;
	return wk_put(c, in->created, o);
}

static CUresult create(struct wk_call *c, uint64_t created, uint32_t ordinal, uint64_t most_bytes, CUmemAllocationHandleType types)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = types,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		.maxSize = most_bytes,
	};
	CUmemoryPool pool;
	CUdevice device;
	CUresult r = wk_driver.cuDeviceGet(&device, (int)ordinal);

	properties.location.id = device;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemPoolCreate(&pool, &properties);
	return r == CUDA_SUCCESS ? wk_fill(c, WK_POOL, created, pool, 0) : r;
}

CUresult wk_do_pool_create(struct wk_call *c, const struct vg_pool_create_request *in)
{
	return create(c, in->created, in->ordinal, in->most_bytes, CU_MEM_HANDLE_TYPE_NONE);
}

CUresult wk_do_pool_create_shareable(struct wk_call *c, const struct vg_pool_create_shareable_request *in)
{
	return create(c, in->created, in->ordinal, in->most_bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult wk_do_pool_destroy(struct wk_call *c, const struct vg_pool_destroy_request *in)
{
	return wk_remove(c, WK_POOL, in->pool);
}

static CUresult keep(struct wk_call *c, const struct wk_object *pool, uint64_t address, uint64_t bytes)
{
	struct wk_object *o = wk_object_new(WK_MEMORY, c->context, NULL, 0);

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->address = address;
	o->bytes = bytes;
	o->pool = pool->number;
	return wk_ledger_enter(c, o);
}

CUresult wk_do_pool_allocate(struct wk_call *c, const struct vg_pool_allocate_request *in,
			     struct vg_pool_allocate_reply *out)
{
	struct wk_object *stream WK_HELD = NULL, *pool WK_HELD = NULL;
	CUdeviceptr address = 0;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_POOL, in->pool, &pool);
	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_MEMORY, in->bytes);
	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_MEMORY, in->bytes,
			       WK_WITH_ROOM(wk_driver.cuMemAllocFromPoolAsync(&address, in->bytes, pool->driver,
									      wk_raw(stream))));
	if (r == CUDA_SUCCESS)
		r = keep(c, pool, address, in->bytes);
	out->address = address;
	return r;
}

/* Room for any attribute's value: which there are is the driver's to say. */
union attribute {
	uint64_t number;
	uint8_t room[64];
};

/*
 * What a pool keeps after it was freed is charged to nobody. Under a limit of the VM a pool therefore keeps nothing beyond
 * the next synchronisation, whatever the guest wants; it is told what it has set.
 */
static bool keeps_threshold(uint32_t attribute)
{
	return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && vg_limit(VG_LIMIT_DEVICE_MEMORY) != VG_UNLIMITED;
}

CUresult wk_do_pool_get(struct wk_call *c, const struct vg_pool_get_request *in, struct vg_pool_get_reply *out)
{
	struct wk_object *pool WK_HELD = NULL;
	union attribute value = { .number = 0 };
	CUresult r = wk_hold(c, WK_POOL, in->pool, &pool);

	if (r == CUDA_SUCCESS && keeps_threshold(in->attribute))
		value.number = atomic_load(&pool->threshold);
	else if (r == CUDA_SUCCESS)
		r = wk_driver.cuMemPoolGetAttribute(pool->driver, in->attribute, &value);
	out->value = value.number;
	return r;
}

CUresult wk_do_pool_set(struct wk_call *c, const struct vg_pool_set_request *in)
{
	struct wk_object *pool WK_HELD = NULL;
	union attribute value = { .room = { 0 } };
	CUresult r = wk_hold(c, WK_POOL, in->pool, &pool);

	value.number = in->value;
	if (r == CUDA_SUCCESS && keeps_threshold(in->attribute)) {
		atomic_store(&pool->threshold, in->value);
		return CUDA_SUCCESS;
	}
	return r == CUDA_SUCCESS ? wk_driver.cuMemPoolSetAttribute(pool->driver, in->attribute, &value) : r;
}
