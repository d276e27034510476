/* SPDX-License-Identifier: Apache-2.0 */
/* The many forms of cuMemcpy, each brought to the one of copy.c. */
#include "cuda_sim.h"

static struct copy line(size_t bytes)
{
	return (struct copy){ .width = bytes, .height = 1, .depth = 1 };
}

static CUresult copy_any(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool async)
{
	struct copy c = line(bytes);
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = plane_any(&c.dst, dst, &c);
	if (r == CUDA_SUCCESS)
		r = plane_any(&c.src, src, &c);
	return r == CUDA_SUCCESS ? copy_submit(stream, &c, async) : r;
}

static CUresult copy_htod(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream, bool async)
{
	struct copy c = line(bytes);
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = plane_device(&c.dst, dst, &c);
	if (r == CUDA_SUCCESS && bytes && !src)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = plane_any(&c.src, (uint64_t)src, &c);
	return r == CUDA_SUCCESS ? copy_submit(stream, &c, async) : r;
}

static CUresult copy_dtoh(void *dst, CUdeviceptr src, size_t bytes, CUstream stream, bool async)
{
	struct copy c = line(bytes);
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = plane_device(&c.src, src, &c);
	if (r == CUDA_SUCCESS && bytes && !dst)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = plane_any(&c.dst, (uint64_t)dst, &c);
	return r == CUDA_SUCCESS ? copy_submit(stream, &c, async) : r;
}

static CUresult copy_dtod(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool async)
{
	struct copy c = line(bytes);
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = plane_device(&c.dst, dst, &c);
	if (r == CUDA_SUCCESS)
		r = plane_device(&c.src, src, &c);
	return r == CUDA_SUCCESS ? copy_submit(stream, &c, async) : r;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy_any(dst, src, bytes, NULL, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy_any(dst, src, bytes, stream, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
	return copy_htod(dst, src, bytes, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	return copy_htod(dst, src, bytes, stream, true);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	return copy_dtoh(dst, src, bytes, NULL, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy_dtoh(dst, src, bytes, stream, true);
}

/* Documented: a copy within the device does not wait for the host. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy_dtod(dst, src, bytes, NULL, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy_dtod(dst, src, bytes, stream, true);
}

static CUresult check_peers(CUcontext dst, CUcontext src)
{
	DRV_LOCKED();
	return handle_is(dst, HANDLE_CONTEXT) && handle_is(src, HANDLE_CONTEXT) ? CUDA_SUCCESS :
										     CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
			   CUstream stream)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = check_peers(dst_context, src_context);
	return r == CUDA_SUCCESS ? copy_dtod(dst, src, bytes, stream, true) : r;
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes)
{
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = check_peers(dst_context, src_context);
	return r == CUDA_SUCCESS ? copy_dtod(dst, src, bytes, NULL, false) : r;
}

/* One side of a 2D or 3D copy, as the structures give it. */
struct side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	size_t x, y, z, pitch, height;
};

static CUresult side_plane(const struct side *side, const struct copy *c, struct plane *p)
{
	bool host = side->type == CU_MEMORYTYPE_HOST;
	size_t rows, offset;

	if (side->type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (side->type != CU_MEMORYTYPE_DEVICE && side->type != CU_MEMORYTYPE_UNIFIED && !host)
		return CUDA_ERROR_INVALID_VALUE;
	/* a pitch of 0 means rows without gaps */
	p->pitch = side->pitch ? side->pitch : c->width + side->x;
	if (p->pitch < c->width + side->x && c->height > 1)
		return CUDA_ERROR_INVALID_VALUE;
	rows = side->height ? side->height : c->height + side->y;
	if (__builtin_mul_overflow(p->pitch, rows, &p->slice) || __builtin_mul_overflow(p->slice, side->z, &offset) ||
	    __builtin_add_overflow(offset, side->y * p->pitch + side->x, &offset))
		return CUDA_ERROR_INVALID_VALUE;
	if (host) {
		plane_host(p, (const char *)side->host + offset, c);
		return side->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	return side->type == CU_MEMORYTYPE_UNIFIED ? plane_any(p, side->device + offset, c) :
						     plane_device(p, side->device + offset, c);
}

static CUresult copy_sides(const struct side *dst, const struct side *src, struct copy *c, CUstream stream, bool async)
{
	CUresult r;

	if (!c->width || !c->height || !c->depth)
		return copy_submit(stream, c, async);
	r = side_plane(dst, c, &c->dst);
	if (r == CUDA_SUCCESS)
		r = side_plane(src, c, &c->src);
	return r == CUDA_SUCCESS ? copy_submit(stream, c, async) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	CONTEXT_ENTER(ctx);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	struct copy c = { .width = p->WidthInBytes, .height = p->Height, .depth = 1 };
	struct side dst = { p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes, p->dstY, 0, p->dstPitch, 0 };
	struct side src = { p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY, 0, p->srcPitch, 0 };

	return copy_sides(&dst, &src, &c, stream, async);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p)
{
	return copy_2d(p, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream)
{
	return copy_2d(p, stream, true);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	CONTEXT_ENTER(ctx);
	if (!p || p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	struct copy c = { .width = p->WidthInBytes, .height = p->Height, .depth = p->Depth };
	struct side dst = { p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
			    p->dstY,	      p->dstZ,	  p->dstPitch,	p->dstHeight };
	struct side src = { p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes,
			    p->srcY,	      p->srcZ,	  p->srcPitch,	p->srcHeight };

	return copy_sides(&dst, &src, &c, stream, async);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	return copy_3d(p, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	return copy_3d(p, stream, true);
}
