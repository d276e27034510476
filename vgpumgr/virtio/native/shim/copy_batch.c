/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes. Sources in host memory are read at the call, whatever was asked for. */
#include "copies.h"

static CUresult copy_each(const struct cuda_copies *copies, CUstream stream, size_t *failed)
{
	static const struct cuda_copy_calls calls = { cuMemcpyAsync, cuStreamIsCapturing, cuStreamSynchronize, shim_is_device };
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!stream || stream == CU_STREAM_LEGACY))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? cuda_copy_each(copies, &calls, stream, failed) : r;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

SHIM_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
					CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return copy_each(&(struct cuda_copies){ dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs }, hStream, NULL);
}

SHIM_API CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
					     CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, PER_THREAD(hStream));
}

SHIM_API CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
				     CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
				     CUstream hStream)
{
	return copy_each(&(struct cuda_copies){ dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs }, hStream, failIdx);
}

SHIM_API CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
					  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
					  CUstream hStream)
{
	return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, PER_THREAD(hStream));
}

SHIM_API CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr,
					      CUstream hStream)
{
	size_t first = 0;

	return copy_each(&(struct cuda_copies){ &dst, &src, &size, 1, attr, &first, 1 }, hStream, NULL);
}

SHIM_API CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr,
						   CUstream hStream)
{
	return cuMemcpyWithAttributesAsync(dst, src, size, attr, PER_THREAD(hStream));
}
