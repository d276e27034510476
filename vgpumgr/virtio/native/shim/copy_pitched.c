/* SPDX-License-Identifier: Apache-2.0 */
/* 2D and 3D copies: each slice is a rectangle of rows; what lies between rows is neither read nor written. */
#include <string.h>

#include "captures.h"
#include "copies.h"

struct box {
	struct cuda_copy copy;
	bool to_device, from_device;
};

/* Whether a side is device memory. All that the copy touches of it must be addressable. */
static CUresult check_side(const struct cuda_copy *copy, const struct cuda_side *side, bool *device)
{
	size_t bytes;
	CUresult r = cuda_copy_extent(copy, side, &bytes);

	*device = side->type == CU_MEMORYTYPE_DEVICE || (side->type == CU_MEMORYTYPE_UNIFIED && shim_is_device(side->base));
	if (r != CUDA_SUCCESS)
		return r;
	if (*device)
		return shim_check_range(side->base, bytes, 1, 1, 0);
	return side->base + bytes < side->base ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_host(const struct cuda_copy *c, uint64_t from, uint64_t to)
{
	for (size_t y = 0; y < c->rows; y++)
		memmove((void *)(to + y * c->to.pitch), (const void *)(from + y * c->from.pitch), c->width);
	return CUDA_SUCCESS;
}

static CUresult copy_slice(const struct box *b, size_t z, uint64_t context, uint64_t stream)
{
	const struct cuda_copy *c = &b->copy;
	uint64_t from = c->from.base + z * c->from.slice, to = c->to.base + z * c->to.slice;
	struct vg_copy_device_2d_request in = { context, to, c->to.pitch, from, c->from.pitch, c->width, c->rows,
						stream };
	struct shim_rect down = { to, c->to.pitch, (uint8_t *)from, c->from.pitch, c->width, c->rows };
	struct shim_rect up = { from, c->from.pitch, (uint8_t *)to, c->to.pitch, c->width, c->rows };
	struct shim_across across = { to, c->to.pitch, from, c->from.pitch, c->width, c->rows, b->to_device, b->from_device };

	if ((b->to_device && shim_is_elsewhere(context, to)) || (b->from_device && shim_is_elsewhere(context, from)))
		return shim_copy_across(context, stream, &across);
	if (b->from_device && b->to_device)
		return vg_send_copy_device_2d(&in);
	if (b->to_device)
		return shim_copy_to_device(context, stream, &down);
	if (b->from_device)
		return shim_copy_to_host(context, stream, &up);
	return copy_host(c, from, to);
}

/* In a graph, memory that is mapped on the device too is memory of the device. */
static CUresult capture_box(struct box *b, uint64_t context, uint64_t stream, bool *captured)
{
	CUresult r;

	if (!shim_capturing(context, stream, &r))
		return r;
	b->from_device = b->from_device || shim_is_device(b->copy.from.base);
	b->to_device = b->to_device || shim_is_device(b->copy.to.base);
	return b->from_device && b->to_device ? CUDA_SUCCESS :
						shim_capture_copy(context, stream, &b->copy, b->to_device, b->from_device, captured);
}

static CUresult copy_box(struct box *b, CUstream hStream)
{
	bool captured = false;
	uint64_t context, stream;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r != CUDA_SUCCESS || cuda_copy_is_empty(&b->copy))
		return r;
	r = check_side(&b->copy, &b->copy.from, &b->from_device);
	if (r == CUDA_SUCCESS)
		r = check_side(&b->copy, &b->copy.to, &b->to_device);
	if (r == CUDA_SUCCESS && (!b->from_device || !b->to_device))
		r = capture_box(b, context, stream, &captured);
	if (captured)
		return r;
	if (r == CUDA_SUCCESS && !b->from_device && !b->to_device)
		r = cuStreamSynchronize(stream ? (CUstream)stream : CU_STREAM_LEGACY);
	for (size_t z = 0; r == CUDA_SUCCESS && z < b->copy.slices; z++)
		r = copy_slice(b, z, context, stream);
	return r;
}

static CUresult copy_any(CUresult r, struct box *b, CUstream hStream)
{
	bool array = r == CUDA_SUCCESS && !cuda_copy_is_empty(&b->copy) &&
		     (b->copy.to.type == CU_MEMORYTYPE_ARRAY || b->copy.from.type == CU_MEMORYTYPE_ARRAY);

	if (array)
		return shim_copy_array(&b->copy, hStream);
	return r == CUDA_SUCCESS ? copy_box(b, hStream) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream hStream)
{
	struct box b;
	CUresult r = cuda_read_copy_2d(p, &b.copy);

	return copy_any(r, &b, hStream);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream hStream)
{
	struct box b;
	CUresult r = cuda_read_copy_3d(p, &b.copy);

	return copy_any(r, &b, hStream);
}

/* By its contexts: an address alone says here whose it is. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream hStream)
{
	CUDA_MEMCPY3D copy;
	CUresult r = cuda_read_copy_3d_peer(p, cuCtxGetDevice_v2, &copy);

	return r == CUDA_SUCCESS ? copy_3d(&copy, hStream) : r;
}

/* Memory of the host that it copies from; 0: it does not. */
#define HOST_OF(p)                                                                                                     \
	((p)->srcMemoryType == CU_MEMORYTYPE_HOST    ? (uint64_t)(p)->srcHost :                                        \
	 (p)->srcMemoryType == CU_MEMORYTYPE_UNIFIED ? (p)->srcDevice :                                                \
						       0)

#define PITCHED(name, type, how)                                                                                       \
	SHIM_API CUresult name(const type *pCopy)                                                                      \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		if (r == CUDA_SUCCESS)                                                                                 \
			r = how(pCopy, CU_STREAM_LEGACY);                                                              \
		return r == CUDA_SUCCESS ? shim_ipc_settled(r, HOST_OF(pCopy), CU_STREAM_LEGACY) : r;                  \
	}                                                                                                              \
	SHIM_API CUresult name##_ptds(const type *pCopy)                                                               \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		if (r == CUDA_SUCCESS)                                                                                 \
			r = how(pCopy, CU_STREAM_PER_THREAD);                                                          \
		return r == CUDA_SUCCESS ? shim_ipc_settled(r, HOST_OF(pCopy), CU_STREAM_PER_THREAD) : r;              \
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
PITCHED(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, copy_3d_peer)
PITCHED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d)
PITCHED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)
PITCHED_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, copy_3d_peer)
