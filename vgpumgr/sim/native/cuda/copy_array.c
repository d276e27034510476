/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemcpy between arrays and memory that is a line. */
#include "cuda_sim.h"

static CUresult copy_line(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUmemorytype flat, uint64_t base,
			  size_t bytes, CUstream stream, bool async)
{
	struct cuda_copy copy;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_read_array_line(to, to_offset, from, from_offset, flat, base, bytes, &copy);
	return r == CUDA_SUCCESS ? copy_sides(&copy, stream, async, false) : r;
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t bytes)
{
	return to ? copy_line(to, offset, NULL, 0, CU_MEMORYTYPE_UNIFIED, (uint64_t)from, bytes, NULL, false) :
		    CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream)
{
	return to ? copy_line(to, offset, NULL, 0, CU_MEMORYTYPE_UNIFIED, (uint64_t)from, bytes, stream, true) :
		    CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t bytes)
{
	return from ? copy_line(NULL, 0, from, offset, CU_MEMORYTYPE_UNIFIED, (uint64_t)to, bytes, NULL, false) :
		      CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
	return from ? copy_line(NULL, 0, from, offset, CU_MEMORYTYPE_UNIFIED, (uint64_t)to, bytes, stream, true) :
		      CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
	return to ? copy_line(to, offset, NULL, 0, CU_MEMORYTYPE_DEVICE, from, bytes, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
	return from ? copy_line(NULL, 0, from, offset, CU_MEMORYTYPE_DEVICE, to, bytes, NULL, false) :
		      CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes)
{
	return to && from ? copy_line(to, to_offset, from, from_offset, 0, 0, bytes, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}
