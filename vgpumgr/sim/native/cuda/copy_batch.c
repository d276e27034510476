/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes: one after the other. */
#include "cuda_sim.h"

#include <cuda_rules.h>

static const struct cuda_copy_calls calls = { .copy = cuMemcpyAsync,
					      .is_capturing = cuStreamIsCapturing,
					      .wait = cuStreamSynchronize,
					      .copy_3d = cuMemcpy3DAsync_v2,
					      .describe = cuArray3DGetDescriptor_v2 };

static CUresult copy_each(const struct cuda_copies *copies, CUstream stream, size_t *failed)
{
	CONTEXT_ENTER(ctx);
	(void)ctx;
	return stream_is_legacy(stream) ? CUDA_ERROR_INVALID_VALUE : cuda_copy_each(copies, &calls, stream, failed);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
			       size_t *first, size_t n_attrs, CUstream stream)
{
	return copy_each(&(struct cuda_copies){ dsts, srcs, sizes, count, attrs, first, n_attrs }, stream, NULL);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
			    size_t *first, size_t n_attrs, size_t *failed, CUstream stream)
{
	return copy_each(&(struct cuda_copies){ dsts, srcs, sizes, count, attrs, first, n_attrs }, stream, failed);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attributes,
				     CUstream stream)
{
	size_t first = 0;

	return copy_each(&(struct cuda_copies){ &dst, &src, &size, 1, attributes, &first, 1 }, stream, NULL);
}

static CUresult copy_each_3d(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, unsigned long long flags, CUstream stream, size_t *failed)
{
	CONTEXT_ENTER(ctx);
	(void)ctx;
	return stream_is_legacy(stream) ? CUDA_ERROR_INVALID_VALUE : cuda_copy_each_3d(list, count, flags, &calls, stream, failed);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream)
{
	return copy_each_3d(list, count, flags, stream, NULL);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags, CUstream stream)
{
	return copy_each_3d(list, count, flags, stream, failed);
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream)
{
	return copy_each_3d(op, 1, flags, stream, NULL);
}
