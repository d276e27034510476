/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its kin. */
#include <stdlib.h>

#include "captures.h"
#include "ipc.h"

static void mark_managed(struct allocation *a, const void *unused)
{
	(void)unused;
	a->managed = true;
}

/* Device memory is memory of this process, so kernels and the program may use it at the same time. */
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	CUresult r = cuda_check_alloc_managed(out, size, flags);

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (r == CUDA_SUCCESS)
		r = memory_allocate(ctx, size, out);
	if (r == CUDA_SUCCESS)
		vm_update(*out, mark_managed, NULL);
	return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	return memory_allocate(ctx, size, out);
}

/* The pitch is a multiple of the texture alignment. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	const size_t align = 512;
	size_t row, size;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	r = cuda_check_alloc_pitch(out, pitch, width, height, element);
	if (r != CUDA_SUCCESS)
		return r;
	if (__builtin_add_overflow(width, align - 1, &row))
		return CUDA_ERROR_INVALID_VALUE;
	row -= row % align;
	if (__builtin_mul_overflow(row, height, &size))
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = row;
	return memory_allocate(ctx, size, out);
}

static bool may_free(const struct allocation *a)
{
	return a->kind == ALLOCATION_DEVICE && !a->of_module && (!a->borrowed || a->pool);
}

/* Waits for the work of the context that owns the memory: it may use it. */
CUresult cuMemFree_v2(CUdeviceptr addr)
{
	struct graph_block *ended;
	struct allocation a;
	bool last = true;
	CUresult r;

	CONTEXT_ENTER(ctx);
	CAPTURE_SAFE();
	if (!addr)
		return CUDA_SUCCESS;
	if (graph_block_free(addr, &r, &ended) && !ended)
		return r;
	free(ended);
	if (!vm_find(addr, &a) || a.addr != addr || !may_free(&a))
		return CUDA_ERROR_INVALID_VALUE;
	r = context_drain(a.ctx);
	if (r != CUDA_SUCCESS)
		return r;
	if (a.borrowed && !ipc_close_memory(a.ctx, addr, IPC_POOLED, &last))
		return CUDA_ERROR_INVALID_VALUE;
	if (!last)
		return CUDA_SUCCESS;
	r = vm_remove(addr, may_free, &a);
	if (r == CUDA_SUCCESS && a.managed)
		advice_forget(&a);
	if (r == CUDA_SUCCESS && a.pool) {
		DRV_LOCKED();
		pool_freed(a.pool, a.size);
	}
	return r;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t available, total;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!free_bytes || !total_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	r = client_memory(ctx->dev, &available, &total);
	if (r != CUDA_SUCCESS)
		return r;
	*free_bytes = available;
	*total_bytes = total;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	struct allocation a;

	CONTEXT_ENTER(ctx);
	if (!vm_find(addr, &a))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = a.addr;
	if (size)
		*size = a.size;
	return CUDA_SUCCESS;
}
