/* SPDX-License-Identifier: Apache-2.0 */
/* 2D and 3D copies: each slice is a rectangle of rows; what lies between rows is neither read nor written. */
#include <string.h>

#include "copy.h"

/* One end of a copy, host or device. */
struct side {
	bool device;
	uint64_t base;
	size_t pitch, height;       /* of a row in bytes, of a slice in rows */
};

struct box {
	struct side from, to;
	size_t width, rows, slices;
};

static CUresult place(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch, size_t height,
		      const size_t at[3], struct side *side)
{
	uint64_t offset, slice;

	if (type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	side->device = type == CU_MEMORYTYPE_DEVICE || (type == CU_MEMORYTYPE_UNIFIED && shim_owner(device));
	side->base = type == CU_MEMORYTYPE_HOST ? (uint64_t)host : device;
	side->pitch = pitch;
	side->height = height;
	if (__builtin_mul_overflow(at[2], height, &slice) || __builtin_add_overflow(slice, at[1], &slice) ||
	    __builtin_mul_overflow(slice, pitch, &offset) || __builtin_add_overflow(offset, at[0], &offset) ||
	    __builtin_add_overflow(side->base, offset, &side->base))
		return CUDA_ERROR_INVALID_VALUE;
	return side->base ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The last byte of a side must be addressable, and rows must not overlap. */
static CUresult check_side(const struct box *b, struct side *s)
{
	uint64_t slice, bytes;

	if (!s->pitch)
		s->pitch = b->width;
	if (!s->height)
		s->height = b->rows;
	if (s->pitch < b->width && (b->rows > 1 || b->slices > 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (s->height < b->rows && b->slices > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(s->pitch, s->height, &slice) ||
	    __builtin_mul_overflow(slice, b->slices - 1, &bytes) ||
	    __builtin_add_overflow(bytes, s->pitch * (b->rows - 1), &bytes) ||
	    __builtin_add_overflow(bytes, b->width, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (s->device)
		return shim_check_range(s->base, bytes, 1, 1, 0);
	return s->base + bytes < s->base ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_host(const struct box *b, uint64_t from, uint64_t to)
{
	for (size_t y = 0; y < b->rows; y++)
		memmove((void *)(to + y * b->to.pitch), (const void *)(from + y * b->from.pitch), b->width);
	return CUDA_SUCCESS;
}

static CUresult copy_slice(const struct box *b, size_t z, uint64_t context, uint64_t stream)
{
	uint64_t from = b->from.base + z * b->from.pitch * b->from.height;
	uint64_t to = b->to.base + z * b->to.pitch * b->to.height;
	struct vg_copy_device_2d_request in = { context, to, b->to.pitch, from, b->from.pitch, b->width, b->rows,
						stream };
	struct shim_rect down = { to, b->to.pitch, (uint8_t *)from, b->from.pitch, b->width, b->rows };
	struct shim_rect up = { from, b->from.pitch, (uint8_t *)to, b->to.pitch, b->width, b->rows };

	if (b->from.device && b->to.device)
		return vg_send_copy_device_2d(&in);
	if (b->to.device)
		return shim_copy_to_device(context, stream, &down);
	if (b->from.device)
		return shim_copy_to_host(context, stream, &up);
	return copy_host(b, from, to);
}

static CUresult copy_box(struct box *b, CUstream hStream)
{
	uint64_t context, stream;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r != CUDA_SUCCESS || !b->width || !b->rows || !b->slices)
		return r;
	if (__builtin_mul_overflow(b->to.pitch, b->rows, &(size_t){ 0 }) ||
	    __builtin_mul_overflow(b->from.pitch, b->rows, &(size_t){ 0 }))
		return CUDA_ERROR_INVALID_VALUE;
	r = check_side(b, &b->from);
	if (r == CUDA_SUCCESS)
		r = check_side(b, &b->to);
	if (r == CUDA_SUCCESS && !b->from.device && !b->to.device)
		r = cuStreamSynchronize(stream ? (CUstream)stream : CU_STREAM_LEGACY);
	for (size_t z = 0; r == CUDA_SUCCESS && z < b->slices; z++)
		r = copy_slice(b, z, context, stream);
	return r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream hStream)
{
	struct box b = { .slices = 1 };
	CUresult r;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	b.width = p->WidthInBytes;
	b.rows = p->Height;
	r = place(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, 0,
		  (size_t[]){ p->srcXInBytes, p->srcY, 0 }, &b.from);
	if (r == CUDA_SUCCESS)
		r = place(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, 0,
			  (size_t[]){ p->dstXInBytes, p->dstY, 0 }, &b.to);
	return r == CUDA_SUCCESS ? copy_box(&b, hStream) : r;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream hStream)
{
	struct box b = { 0 };
	CUresult r;

	if (!p || p->reserved0 || p->reserved1)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	b.width = p->WidthInBytes;
	b.rows = p->Height;
	b.slices = p->Depth;
	r = place(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, p->srcHeight,
		  (size_t[]){ p->srcXInBytes, p->srcY, p->srcZ }, &b.from);
	if (r == CUDA_SUCCESS)
		r = place(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, p->dstHeight,
			  (size_t[]){ p->dstXInBytes, p->dstY, p->dstZ }, &b.to);
	return r == CUDA_SUCCESS ? copy_box(&b, hStream) : r;
}

#define PITCHED(name, type, how)                                                                                       \
	SHIM_API CUresult name(const type *pCopy)                                                                      \
	{                                                                                                              \
		return how(pCopy, CU_STREAM_LEGACY);                                                                   \
	}                                                                                                              \
	SHIM_API CUresult name##_ptds(const type *pCopy)                                                               \
	{                                                                                                              \
		return how(pCopy, CU_STREAM_PER_THREAD);                                                               \
	}

#define PITCHED_ASYNC(name, type, how)                                                                                 \
	SHIM_API CUresult name(const type *pCopy, CUstream hStream)                                                    \
	{                                                                                                              \
		return how(pCopy, hStream);                                                                            \
	}                                                                                                              \
	SHIM_API CUresult name##_ptsz(const type *pCopy, CUstream hStream)                                             \
	{                                                                                                              \
		return how(pCopy, hStream ? hStream : CU_STREAM_PER_THREAD);                                           \
	}

PITCHED(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_2d)
PITCHED(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_2d)
PITCHED(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d)
PITCHED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d)
PITCHED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)
