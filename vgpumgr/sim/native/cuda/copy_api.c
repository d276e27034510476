/* SPDX-License-Identifier: Apache-2.0 */
/* The many forms of cuMemcpy, each brought to the one of copy.c. */
#include "captures.h"

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
	CAPTURE_SAFE();
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

static CUresult side_plane(const struct cuda_side *side, const struct cuda_copy *shape, const struct copy *c,
			   struct plane *p)
{
	if (side->type == CU_MEMORYTYPE_ARRAY)
		return array_plane(p, side, shape);
	p->pitch = side->pitch;
	p->slice = side->slice;
	if (side->type == CU_MEMORYTYPE_UNIFIED)
		return plane_any(p, side->base, c);
	if (side->type == CU_MEMORYTYPE_DEVICE)
		return plane_device(p, side->base, c);
	plane_host(p, (const void *)side->base, c);
	return CUDA_SUCCESS;
}

CUresult copy_sides(const struct cuda_copy *from, CUstream stream, bool async, bool pinned)
{
	struct copy c = { .width = from->width, .height = from->rows, .depth = from->slices };
	CUresult r = CUDA_SUCCESS;

	if (!cuda_copy_is_empty(from))
		r = side_plane(&from->to, from, &c, &c.dst);
	if (r == CUDA_SUCCESS && !cuda_copy_is_empty(from))
		r = side_plane(&from->from, from, &c, &c.src);
	c.dst.pinned |= pinned;
	c.src.pinned |= pinned;
	return r == CUDA_SUCCESS ? copy_submit(stream, &c, async) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	struct cuda_copy c;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_read_copy_2d(p, &c);
	return r == CUDA_SUCCESS ? copy_sides(&c, stream, async, false) : r;
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

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async, bool pinned)
{
	struct cuda_copy c;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_read_copy_3d(p, &c);
	return r == CUDA_SUCCESS ? copy_sides(&c, stream, async, pinned) : r;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
	return copy_3d(p, NULL, false, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
	return copy_3d(p, stream, true, false);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool async)
{
	CUDA_MEMCPY3D copy;
	CUresult r = cuda_read_copy_3d_peer(p, cuCtxGetDevice_v2, &copy);

	return r == CUDA_SUCCESS ? copy_3d(&copy, stream, async, false) : r;
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p)
{
	return copy_3d_peer(p, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
	return copy_3d_peer(p, stream, true);
}

CUresult copy_node(const CUDA_MEMCPY3D *p, CUstream stream)
{
	return copy_3d(p, stream, true, true);
}
