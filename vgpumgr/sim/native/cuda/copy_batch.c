/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes: one after the other. */
#include "cuda_sim.h"

#include <cuda_rules.h>

static bool is_capturing(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult copy_each(const struct cuda_copies *copies, CUstream stream, size_t *failed)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	(void)ctx;
	if (stream_is_legacy(stream))
		return CUDA_ERROR_INVALID_VALUE;
	r = cuda_copy_each(copies, cuMemcpyAsync, stream, failed);
	return r == CUDA_SUCCESS && cuda_copies_end_with_call(copies) && !is_capturing(stream) ? cuStreamSynchronize(stream) : r;
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
