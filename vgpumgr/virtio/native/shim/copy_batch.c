/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, and copies with attributes. Sources in host memory are read at the call, whatever was asked for. */
#include "copies.h"

static const struct cuda_copy_calls calls = { cuMemcpyAsync,  cuStreamIsCapturing, cuStreamSynchronize,
					      shim_is_device, cuMemcpy3DAsync_v2,  cuArray3DGetDescriptor_v2 };

static CUresult copy_each(const struct cuda_copies *copies, CUstream stream, size_t *failed)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!stream || stream == CU_STREAM_LEGACY))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? cuda_copy_each(copies, &calls, stream, failed) : r;
}

SHIM_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
					CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return copy_each(&(struct cuda_copies){ dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs }, hStream, NULL);
}

SHIM_API CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
					     CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, SHIM_PER_THREAD(hStream));
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
	return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, SHIM_PER_THREAD(hStream));
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
	return cuMemcpyWithAttributesAsync(dst, src, size, attr, SHIM_PER_THREAD(hStream));
}

static CUresult copy_each_3d(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, unsigned long long flags, CUstream stream, size_t *failed)
{
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!stream || stream == CU_STREAM_LEGACY))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? cuda_copy_each_3d(list, count, flags, &calls, stream, failed) : r;
}

SHIM_API CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
	return copy_each_3d(opList, numOps, flags, hStream, NULL);
}

SHIM_API CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
	return copy_each_3d(opList, numOps, flags, SHIM_PER_THREAD(hStream), NULL);
}

SHIM_API CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
				       CUstream hStream)
{
	return copy_each_3d(opList, numOps, flags, hStream, failIdx);
}

SHIM_API CUresult cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
					    CUstream hStream)
{
	return copy_each_3d(opList, numOps, flags, SHIM_PER_THREAD(hStream), failIdx);
}

SHIM_API CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream)
{
	return copy_each_3d(op, 1, flags, hStream, NULL);
}

SHIM_API CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream)
{
	return copy_each_3d(op, 1, flags, SHIM_PER_THREAD(hStream), NULL);
}
