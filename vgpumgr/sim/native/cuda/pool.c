/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocation. Memory is usable from the call on and goes back to the machine when the stream reaches the
 * free, so a pool never holds more than is in use; the release threshold is recorded and has nothing to act on.
 */
#include <stdlib.h>
#include <unistd.h>

#include "captures.h"
#include "ipc.h"

struct pool {
	struct pool *next;  /* of those that can be shared, and live */
	struct device *dev;
	uint64_t id;        /* 0: it cannot be shared */
	uint32_t access;    /* the devices that get at its memory, a bit each */
	size_t lent;        /* to other processes */
	struct ipc_handle origin; /* of one that is imported; its kind is 0 of our own */
	int line;           /* to the process that it is imported from */
	bool is_default, destroyed, exported;
	uint64_t used, used_high, threshold;
	int reuse[3]; /* the three reuse attributes, on by default */
};

static struct pool *shareable; /* with drv.lock held */

static struct pool *pool_create(struct device *dev, bool is_default)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct pool){ .dev = dev, .is_default = is_default, .reuse = { 1, 1, 1 }, .access = UINT32_C(1) << dev->ordinal, .line = -1 };
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

/* Something of it has ended. */
static void pool_end_unused(struct pool *p)
{
	if (!p->destroyed || p->used || p->lent)
		return;
	if (p->line >= 0)
		close(p->line);
	free(p);
}

void pool_freed(struct pool *p, uint64_t size)
{
	p->used -= size;
	pool_end_unused(p);
}

bool pool_permits(const struct pool *p, const struct device *dev)
{
	return __atomic_load_n(&p->access, __ATOMIC_RELAXED) >> dev->ordinal & 1;
}

static bool is_imported(const struct pool *p)
{
	return p->origin.kind;
}

static void make_shareable(struct pool *p)
{
	p->id = next_id();
	p->next = shareable;
	shareable = p;
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
	if (!handle_is(handle, HANDLE_POOL) || ((struct pool *)handle)->dev != d || is_imported((struct pool *)handle))
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
	if (*out && props->handleTypes)
		make_shareable((struct pool *)*out);
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
	for (struct pool **at = &shareable; *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	p->destroyed = true;
	pool_end_unused(p);
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

static struct cuda_reach reach_of(const struct pool *p)
{
	return (struct cuda_reach){ p->dev->ordinal, drv.n_devices, peer_devices(p->dev), p->access };
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *list, size_t count)
{
	struct pool *p = (struct pool *)handle;
	struct cuda_reach reach;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	reach = reach_of(p);
	r = cuda_set_pool_access(list, count, &reach);
	if (r == CUDA_SUCCESS) /* kernels read it */
		__atomic_store_n(&p->access, reach.access, __ATOMIC_RELAXED);
	return r;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	struct cuda_reach reach;

	DRIVER_CHECK();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	reach = reach_of((struct pool *)handle);
	return cuda_read_pool_access(location, &reach, flags);
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
	known = handle_is(pool, HANDLE_POOL) && !is_imported(pool);
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
	if (is_imported(pool))
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

/* One opening less; drv.lock is dropped meanwhile. */
static bool close_borrowed(const struct allocation *a, bool *last)
{
	bool found;

	drv_unlock();
	found = ipc_close_memory(a->ctx, a->addr, IPC_POOLED, last);
	drv_lock();
	return found;
}

/* Also for memory of cuMemAlloc. */
CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	struct graph_block *ended;
	struct allocation a;
	struct stream *s;
	bool last = true;
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
	if (!vm_find(addr, &a) || a.addr != addr || a.kind != ALLOCATION_DEVICE || a.of_module || (a.borrowed && !a.pool) || a.freeing)
		return CUDA_ERROR_INVALID_VALUE;
	if (a.borrowed && !close_borrowed(&a, &last))
		return CUDA_ERROR_INVALID_VALUE;
	return last ? submit_free(s, addr) : CUDA_SUCCESS;
}

/* ---- between processes: shareable.c */

CUresult pool_export(CUmemoryPool handle, uint64_t *id)
{
	struct pool *p = (struct pool *)handle;

	if (!handle_is(p, HANDLE_POOL) || !p->id)
		return CUDA_ERROR_INVALID_VALUE;
	p->exported = true;
	*id = p->id;
	return CUDA_SUCCESS;
}

uint64_t pool_exportable(const struct pool *p)
{
	return p->exported && !p->destroyed ? p->id : 0;
}

struct pool *pool_lend(uint64_t id, struct ipc_offer *offer)
{
	struct pool *p = shareable;

	while (p && p->id != id)
		p = p->next;
	if (!p)
		return NULL;
	*offer = (struct ipc_offer){ .gpu = p->dev->gpu, .gi_id = p->dev->gi_id, .ci_id = p->dev->ci_id };
	p->lent++;
	return p;
}

void pool_take_back(struct pool *p)
{
	p->lent--;
	pool_end_unused(p);
}

CUresult pool_import(struct device *dev, const struct ipc_handle *origin, int line, CUmemoryPool *out)
{
	struct pool *p = pool_create(dev, false);

	if (!p) {
		close(line);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->origin = *origin;
	p->line = line;
	*out = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

const struct ipc_handle *pool_origin(CUmemoryPool handle, struct device **dev)
{
	const struct pool *p = (const struct pool *)handle;

	if (!handle_is(p, HANDLE_POOL) || !is_imported(p))
		return NULL;
	*dev = p->dev;
	return &p->origin;
}

void pool_borrowed(CUmemoryPool handle, uint64_t addr)
{
	struct pool *p = (struct pool *)handle;
	struct allocation a;

	if (!handle_is(p, HANDLE_POOL) || !vm_find(addr, &a))
		return;
	vm_update(addr, set_pool, p);
	p->used += a.size;
	p->used_high = p->used > p->used_high ? p->used : p->used_high;
}
