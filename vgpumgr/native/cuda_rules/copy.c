/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills of several rows: what their structures say, and how far they reach. */
#include "cuda_rules.h"

/* One end as the structures give it. */
struct end {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, pitch, height;
};

/* A pitch or height of 0 means rows or slices without gaps. */
static CUresult read_side(const struct end *end, const struct cuda_copy *copy, struct cuda_side *side)
{
	size_t row, rows, height, offset, down;

	if (end->type == CU_MEMORYTYPE_ARRAY) {
		*side = (struct cuda_side){ .type = end->type, .array = end->array, .x = end->x, .y = end->y, .z = end->z };
		return end->array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (end->type != CU_MEMORYTYPE_HOST && end->type != CU_MEMORYTYPE_DEVICE && end->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	side->type = end->type;
	side->base = end->type == CU_MEMORYTYPE_HOST ? (uint64_t)end->host : end->device;
	if (!side->base || __builtin_add_overflow(copy->width, end->x, &row) ||
	    __builtin_add_overflow(copy->rows, end->y, &rows))
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = end->pitch ? end->pitch : row;
	height = end->height ? end->height : rows;
	if ((side->pitch < row && (copy->rows > 1 || copy->slices > 1)) || (height < rows && copy->slices > 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(side->pitch, height, &side->slice) ||
	    __builtin_mul_overflow(side->slice, end->z, &offset) ||
	    __builtin_mul_overflow(side->pitch, end->y, &down) || __builtin_add_overflow(offset, down, &offset) ||
	    __builtin_add_overflow(offset, end->x, &offset) || __builtin_add_overflow(side->base, offset, &side->base))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult read_sides(const struct end *to, const struct end *from, struct cuda_copy *copy)
{
	CUresult r;

	if (cuda_copy_is_empty(copy))
		return CUDA_SUCCESS;
	r = read_side(from, copy, &copy->from);
	return r == CUDA_SUCCESS ? read_side(to, copy, &copy->to) : r;
}

CUresult cuda_read_copy_2d(const CUDA_MEMCPY2D *p, struct cuda_copy *copy)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct end to = { p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, 0, p->dstPitch, 0 };
	struct end from = { p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY, 0, p->srcPitch, 0 };

	*copy = (struct cuda_copy){ .width = p->WidthInBytes, .rows = p->Height, .slices = 1 };
	return read_sides(&to, &from, copy);
}

CUresult cuda_read_copy_3d(const CUDA_MEMCPY3D *p, struct cuda_copy *copy)
{
	if (!p || p->reserved0 || p->reserved1 || p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	struct end to = { p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes,
			  p->dstY,	    p->dstZ,	p->dstPitch,  p->dstHeight };
	struct end from = { p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes,
			    p->srcY,	      p->srcZ,	  p->srcPitch,	p->srcHeight };

	*copy = (struct cuda_copy){ .width = p->WidthInBytes, .rows = p->Height, .slices = p->Depth };
	return read_sides(&to, &from, copy);
}

static CUresult look_at_side(CUmemorytype type, CUcontext context, CUresult (*look)(CUdevice *device, CUcontext context))
{
	CUdevice device;

	if (type != CU_MEMORYTYPE_DEVICE)
		return CUDA_SUCCESS;
	return context ? look(&device, context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuda_read_copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUresult (*look)(CUdevice *device, CUcontext context), CUDA_MEMCPY3D *copy)
{
	CUresult r = p ? look_at_side(p->srcMemoryType, p->srcContext, look) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = look_at_side(p->dstMemoryType, p->dstContext, look);
	if (r != CUDA_SUCCESS)
		return r;
	*copy = (CUDA_MEMCPY3D){
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcZ = p->srcZ, .srcLOD = p->srcLOD,
		.srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost, .srcDevice = p->srcDevice, .srcArray = p->srcArray,
		.srcPitch = p->srcPitch, .srcHeight = p->srcHeight,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstZ = p->dstZ, .dstLOD = p->dstLOD,
		.dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost, .dstDevice = p->dstDevice, .dstArray = p->dstArray,
		.dstPitch = p->dstPitch, .dstHeight = p->dstHeight,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = p->Depth,
	};
	return CUDA_SUCCESS;
}

bool cuda_copy_is_empty(const struct cuda_copy *copy)
{
	return !copy->width || !copy->rows || !copy->slices;
}

CUresult cuda_copy_extent(const struct cuda_copy *copy, const struct cuda_side *side, size_t *bytes)
{
	size_t rows, slices;

	*bytes = 0;
	if (cuda_copy_is_empty(copy))
		return CUDA_SUCCESS;
	if (__builtin_mul_overflow(side->pitch, copy->rows - 1, &rows) ||
	    __builtin_mul_overflow(side->slice, copy->slices - 1, &slices) ||
	    __builtin_add_overflow(rows, slices, bytes) || __builtin_add_overflow(*bytes, copy->width, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuda_rows_extent(size_t count, size_t element, size_t rows, size_t pitch, size_t *bytes)
{
	struct cuda_copy shape = { .rows = rows, .slices = 1 };
	struct cuda_side side = { .pitch = pitch };

	if (__builtin_mul_overflow(count, element, &shape.width) || (rows > 1 && pitch < shape.width))
		return CUDA_ERROR_INVALID_VALUE;
	return cuda_copy_extent(&shape, &side, bytes);
}
