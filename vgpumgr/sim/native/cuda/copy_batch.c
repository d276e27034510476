/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes: one after the other. */
#include "cuda_sim.h"

#include <cuda_rules.h>

static CUresult copy_each(const struct cuda_copies *copies, CUstream stream, size_t *failed)
{
	static const struct cuda_copy_calls calls = { cuMemcpyAsync, cuStreamIsCapturing, cuStreamSynchronize, NULL };

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
