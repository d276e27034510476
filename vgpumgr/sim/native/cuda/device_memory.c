/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device as it is taken and given back: by calls, pools and graphs. */
#include "cuda_sim.h"

/* On shortage, what streams are about to free is waited for, as the driver does, and the allocation tried once more. */
CUresult memory_allocate(struct context *ctx, size_t size, CUdeviceptr *out)
{
	uint64_t addr;
	CUresult r = vm_alloc(ctx, size, false, &addr);

	if (r == CUDA_ERROR_OUT_OF_MEMORY && size <= ctx->dev->total_bytes) {
		context_drain(ctx);
		r = vm_alloc(ctx, size, false, &addr);
	}
	if (r == CUDA_SUCCESS)
		*out = addr;
	return r;
}

static bool is_plain(const struct allocation *a)
{
	return a->kind == ALLOCATION_DEVICE && !a->of_module && !a->pool;
}

/* Waits for the work of the context: it may use it. */
void memory_give(CUdeviceptr address)
{
	struct allocation a;

	if (vm_find(address, &a) && a.addr == address && is_plain(&a) && context_drain(a.ctx) == CUDA_SUCCESS)
		vm_remove(address, is_plain, &a);
}
