/* SPDX-License-Identifier: Apache-2.0 */
/* Advice about managed memory, which has one place here. It is checked, kept for cuMemRangeGetAttribute, and not followed. */
#include <pthread.h>

#include "cuda_sim.h"

static struct {
	pthread_mutex_t lock;
	struct cuda_advice kept;
} advice = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool find(CUdeviceptr address, size_t bytes, struct cuda_managed *m)
{
	struct allocation a;

	if (!bytes || !vm_contains(address, bytes, &a) || !a.managed)
		return false;
	*m = (struct cuda_managed){ .owner = a.id, .base = a.addr, .size = a.size, .start = address, .bytes = bytes };
	return true;
}

void advice_forget(const struct allocation *a)
{
	pthread_mutex_lock(&advice.lock);
	cuda_forget_advice(&advice.kept, a->id);
	pthread_mutex_unlock(&advice.lock);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise what, CUmemLocation location)
{
	struct cuda_managed memory;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_advice(what, &location, drv.n_devices);
	if (r != CUDA_SUCCESS || !find(address, bytes, &memory))
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&advice.lock);
	r = cuda_advise(&advice.kept, &memory, what, location);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise what, CUdevice device)
{
	return cuMemAdvise_v2(address, bytes, what, cuda_location_of(device));
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation *to, CUstream handle)
{
	struct cuda_managed memory;
	struct stream *stream;
	CUmemLocation where = to ? *to : (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST };
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = stream_get(ctx, handle, &stream);
	if (r == CUDA_SUCCESS)
		r = cuda_check_prefetch(&where, drv.n_devices);
	if (r == CUDA_SUCCESS)
		r = find(address, bytes, &memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS || !to)
		return r;
	pthread_mutex_lock(&advice.lock);
	r = cuda_note_prefetch(&advice.kept, &memory, where);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
	const CUmemLocation to = cuda_location_of(device);

	return prefetch(address, bytes, &to, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
			       CUstream stream)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, bytes, &location, stream);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes)
{
	struct cuda_managed memory;
	CUresult r;

	CONTEXT_ENTER(ctx);
	(void)ctx;
	if (!find(address, bytes, &memory))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&advice.lock);
	r = cuda_range_attribute(&advice.kept, &memory, attribute, data, size);
	pthread_mutex_unlock(&advice.lock);
	return r;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count, CUdeviceptr address,
				 size_t bytes)
{
	return cuda_range_attributes(data, sizes, attributes, count, address, bytes, cuMemRangeGetAttribute);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)
{
	struct allocation a;

	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!vm_find(address, &a) || a.addr != address || (bytes && bytes != a.size))
		return CUDA_ERROR_INVALID_VALUE;
	return prefetch(address, a.size, NULL, stream);
}

static CUresult prefetch_each(const struct cuda_prefetches *each, unsigned long long flags, CUstream stream)
{
	CONTEXT_ENTER(ctx);
	(void)ctx;
	return stream_is_legacy(stream) ? CUDA_ERROR_INVALID_VALUE : cuda_prefetch_each(each, flags, stream, prefetch);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *places, size_t *first, size_t kinds,
				 unsigned long long flags, CUstream stream)
{
	const struct cuda_prefetches each = { at, sizes, count, places, first, kinds };
	CUresult r = places ? cuda_check_parts(first, kinds, count) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? prefetch_each(&each, flags, stream) : r;
}

/* What is discarded may be read as it was. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, unsigned long long flags, CUstream stream)
{
	const struct cuda_prefetches each = { .at = at, .sizes = sizes, .count = count };

	return prefetch_each(&each, flags, stream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *at, size_t *sizes, size_t count, CUmemLocation *places, size_t *first,
					   size_t kinds, unsigned long long flags, CUstream stream)
{
	return cuMemPrefetchBatchAsync(at, sizes, count, places, first, kinds, flags, stream);
}
