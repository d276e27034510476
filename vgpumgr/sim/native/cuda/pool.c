/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocation. Memory is usable from the call on and goes back to the machine when the stream reaches the
 * free, so a pool never holds more than is in use; the release threshold is recorded and has nothing to act on.
 */
#include <stdlib.h>

#include "captures.h"

struct pool {
	struct device *dev;
	bool is_default, destroyed;
	uint64_t used, used_high, threshold;
	int reuse[3]; /* the three reuse attributes, on by default */
};

static struct pool *pool_create(struct device *dev, bool is_default)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct pool){ .dev = dev, .is_default = is_default, .reuse = { 1, 1, 1 } };
	if (handle_add(p, HANDLE_POOL)) {
		free(p);
		return NULL;
	}
	return p;
}

static struct pool *default_pool(struct device *dev)
{
	if (!dev->default_pool)
		dev->default_pool = pool_create(dev, true);
	return dev->default_pool;
}

void pool_freed(struct pool *p, uint64_t size)
{
	p->used -= size;
	if (p->destroyed && !p->used)
		free(p);
}

static CUresult get_pool(CUmemoryPool *out, struct device *dev, bool current)
{
	struct pool *p;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!dev)
		return CUDA_ERROR_INVALID_DEVICE;
	DRV_LOCKED();
	p = current && dev->current_pool ? dev->current_pool : default_pool(dev);
	*out = (CUmemoryPool)p;
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
	DRIVER_CHECK();
	return get_pool(out, device_find(dev), false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
	DRIVER_CHECK();
	return get_pool(out, device_find(dev), true);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
	struct device *d = device_find(dev);

	DRIVER_CHECK();
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_POOL) || ((struct pool *)handle)->dev != d)
		return CUDA_ERROR_INVALID_VALUE;
	d->current_pool = (struct pool *)handle;
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(out, location->id) : r;
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? cuDeviceGetMemPool(out, location->id) : r;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle)
{
	CUresult r = cuda_check_pool_location(location, type);

	return r == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, handle) : r;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	struct device *d;
	CUresult r;

	DRIVER_CHECK();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	r = cuda_check_pool_properties(props);
	if (r != CUDA_SUCCESS)
		return r;
	d = device_find(props->location.id);
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	DRV_LOCKED();
	*out = (CUmemoryPool)pool_create(d, false);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What is allocated from it stays valid until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *p = (struct pool *)handle;

	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(p, HANDLE_POOL) || p->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	handle_remove(p);
	if (p->dev->current_pool == p)
		p->dev->current_pool = NULL;
	p->destroyed = true;
	if (!p->used)
		free(p);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	(void)keep;
	DRIVER_CHECK();
	DRV_LOCKED();
	return handle_is(handle, HANDLE_POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_attribute(const struct pool *p, CUmemPool_attribute attribute, void *value)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = p->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = p->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = p->used;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = p->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult set_attribute(struct pool *p, CUmemPool_attribute attribute, const void *value)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		p->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(const int *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(const cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* documented: only a reset to zero */
		if (*(const cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		p->used_high = p->used;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (!value || !handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	return get_attribute((struct pool *)handle, attribute, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (!value || !handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	return set_attribute((struct pool *)handle, attribute, value);
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	return cuda_check_pool_access(list, count, ((struct pool *)handle)->dev->ordinal, drv.n_devices);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	return cuda_read_pool_access(location, ((struct pool *)handle)->dev->ordinal, drv.n_devices, flags);
}

static void set_pool(struct allocation *a, const void *pool)
{
	a->pool = (struct pool *)pool;
}

/* Counts the allocation in its pool before others can see it there. */
static CUresult allocate(struct context *ctx, struct pool *pool, size_t size, CUdeviceptr *out)
{
	uint64_t addr;
	CUresult r = vm_alloc(ctx, size, false, &addr);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && size <= ctx->dev->total_bytes) {
		drv_unlock();
		context_drain(ctx);
		drv_lock();
		r = vm_alloc(ctx, size, false, &addr);
	}
	if (r != CUDA_SUCCESS)
		return r;
	vm_update(addr, set_pool, pool);
	pool->used += size;
	pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
	*out = addr;
	return CUDA_SUCCESS;
}

/* A node, whose memory is of no pool. */
static CUresult capture_from(const struct context *ctx, const struct pool *pool, CUstream stream, size_t size, CUdeviceptr *out)
{
	bool known, own;

	drv_lock();
	known = handle_is(pool, HANDLE_POOL);
	own = known && pool->dev == ctx->dev;
	drv_unlock();
	if (!own)
		return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	return capture_allocation(stream, size, out);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream)
{
	struct pool *pool = (struct pool *)handle;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (capture_takes(stream))
		return capture_from(ctx, pool, stream, size, out);
	DRV_LOCKED();
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(pool, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	/* CUDA permits it; here memory belongs to a context of its device */
	return pool->dev == s->ctx->dev ? allocate(s->ctx, pool, size, out) : CUDA_ERROR_NOT_SUPPORTED;
}

/* From the pool of the stream's device, whatever is current. */
CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	CUmemoryPool pool;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = stream_get(ctx, stream, &s);
	if (r == CUDA_SUCCESS)
		r = get_pool(&pool, s->ctx->dev, true);
	return r == CUDA_SUCCESS ? cuMemAllocFromPoolAsync(out, size, pool, stream) : r;
}

struct free_op {
	struct op op;
	uint64_t addr;
};

static bool is_freeing(const struct allocation *a)
{
	return a->freeing;
}

static CUresult run_free(struct op *op)
{
	struct allocation a;

	if (vm_remove(((struct free_op *)op)->addr, is_freeing, &a) == CUDA_SUCCESS && a.pool) {
		DRV_LOCKED();
		pool_freed(a.pool, a.size);
	}
	return CUDA_SUCCESS;
}

static void release_free(struct op *op)
{
	free(op);
}

static void set_freeing(struct allocation *a, const void *value)
{
	a->freeing = *(const bool *)value;
}

static CUresult submit_free(struct stream *s, uint64_t addr)
{
	const bool yes = true, no = false;
	struct free_op *f = calloc(1, sizeof(*f));
	CUresult r;

	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*f = (struct free_op){ { .run = run_free, .release = release_free, .always = true }, addr };
	vm_update(addr, set_freeing, &yes);
	r = queue_submit(s, &f->op);
	if (r != CUDA_SUCCESS)
		vm_update(addr, set_freeing, &no);
	return r;
}

/* Also for memory of cuMemAlloc. */
CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	struct graph_block *ended;
	struct allocation a;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = stream_get(ctx, stream, &s);
	if (r != CUDA_SUCCESS || !addr)
		return r;
	if (s->capture)
		return capture_free(s, addr);
	if (graph_block_free(addr, &r, &ended) && !ended)
		return r;
	free(ended);
	if (!vm_find(addr, &a) || a.addr != addr || a.kind != ALLOCATION_DEVICE || a.of_module || a.borrowed || a.freeing)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_free(s, addr);
}
