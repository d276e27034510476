/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host and device: linear, 2D and 3D. */
#include <string.h>

#include "copy.h"
#include "format.h"

/* NVIDIA's 13.0 gives another error than its documentation says. */
#if CUDART_VERSION >= 13000
#define WRONG_PITCH cudaErrorInvalidValue
#else
#define WRONG_PITCH cudaErrorInvalidPitchValue
#endif

cudaError_t rt_settle(CUresult result, struct lane lane)
{
	if (result == CUDA_SUCCESS && lane.wait == LANE_THREAD)
		result = CU(cuStreamSynchronize, lane.stream);
	return rt_error(result);
}

static CUresult linear_blocking(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CU(cuMemcpyHtoD, (CUdeviceptr)dst, src, count);
	case cudaMemcpyDeviceToHost:
		return CU(cuMemcpyDtoH, dst, (CUdeviceptr)src, count);
	case cudaMemcpyDeviceToDevice:
		return CU(cuMemcpyDtoD, (CUdeviceptr)dst, (CUdeviceptr)src, count);
	default: /* unified addressing tells host from device */
		return CU(cuMemcpy, (CUdeviceptr)dst, (CUdeviceptr)src, count);
	}
}

static CUresult linear_async(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, CUstream stream)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CU(cuMemcpyHtoDAsync, (CUdeviceptr)dst, src, count, stream);
	case cudaMemcpyDeviceToHost:
		return CU(cuMemcpyDtoHAsync, dst, (CUdeviceptr)src, count, stream);
	case cudaMemcpyDeviceToDevice:
		return CU(cuMemcpyDtoDAsync, (CUdeviceptr)dst, (CUdeviceptr)src, count, stream);
	default:
		return CU(cuMemcpyAsync, (CUdeviceptr)dst, (CUdeviceptr)src, count, stream);
	}
}

static bool is_kind(enum cudaMemcpyKind kind)
{
	return (unsigned int)kind <= cudaMemcpyDefault;
}

cudaError_t rt_copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, struct lane lane)
{
	cudaError_t error;

	if (!is_kind(kind))
		return cudaErrorInvalidMemcpyDirection;
	if (!count)
		return cudaSuccess;
	if (!dst || !src)
		return cudaErrorInvalidValue;
	error = rt_enter();
	if (error != cudaSuccess)
		return error;
	if (lane.wait == LANE_LEGACY)
		return rt_error(linear_blocking(dst, src, count, kind));
	return rt_settle(linear_async(dst, src, count, kind, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
	     rt_copy(dst, src, count, kind, lane))
ASYNC_API(cudaMemcpyAsync,
	  (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
	  rt_copy(dst, src, count, kind, lane))

static struct rt_end end_of(const void *ptr, bool host, bool device)
{
	if (host)
		return (struct rt_end){ .type = CU_MEMORYTYPE_HOST, .host = ptr };
	return (struct rt_end){ .type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
			     .device = (CUdeviceptr)ptr };
}

struct rt_end rt_source(const void *ptr, enum cudaMemcpyKind kind)
{
	return end_of(ptr, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost,
		      kind != cudaMemcpyDefault);
}

struct rt_end rt_target(void *ptr, enum cudaMemcpyKind kind)
{
	return end_of(ptr, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost,
		      kind != cudaMemcpyDefault);
}

static cudaError_t copy_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
			   enum cudaMemcpyKind kind, struct lane lane)
{
	struct rt_end from = rt_source(src, kind), to = rt_target(dst, kind);
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = from.type, .srcHost = from.host, .srcDevice = from.device, .srcPitch = spitch,
		.dstMemoryType = to.type, .dstHost = (void *)to.host, .dstDevice = to.device, .dstPitch = dpitch,
		.WidthInBytes = width, .Height = height,
	};
	cudaError_t error;

	if (!is_kind(kind))
		return cudaErrorInvalidMemcpyDirection;
	if (width > dpitch || width > spitch)
		return WRONG_PITCH;
	if (!width || !height)
		return cudaSuccess;
	if (!dst || !src)
		return cudaErrorInvalidValue;
	error = rt_enter();
	if (error != cudaSuccess)
		return error;
	/* "unaligned": any pitch will do, as the runtime's call promises */
	if (lane.wait == LANE_LEGACY)
		return rt_error(CU(cuMemcpy2DUnaligned, &copy));
	return rt_settle(CU(cuMemcpy2DAsync, &copy, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy2D,
	     (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
	      enum cudaMemcpyKind kind),
	     copy_2d(dst, dpitch, src, spitch, width, height, kind, lane))
ASYNC_API(cudaMemcpy2DAsync,
	  (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
	   enum cudaMemcpyKind kind, cudaStream_t stream),
	  copy_2d(dst, dpitch, src, spitch, width, height, kind, lane))

/* Where an array takes part, the extent counts its elements, and so does a position in it; bytes otherwise. */
static cudaError_t elements_of(const struct cudaMemcpy3DParms *p, size_t *from, size_t *to, size_t *both)
{
	cudaError_t error = cudaSuccess;

	*from = *to = 1;
	if (p->srcArray)
		error = rt_element_bytes(p->srcArray, from);
	if (error == cudaSuccess && p->dstArray)
		error = rt_element_bytes(p->dstArray, to);
	*both = p->srcArray ? *from : *to;
	if (error == cudaSuccess && p->srcArray && p->dstArray && *from != *to)
		error = cudaErrorInvalidValue;
	return error;
}

static cudaError_t lower_3d(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out)
{
	struct rt_end from = rt_source(p->srcPtr.ptr, p->kind), to = rt_target(p->dstPtr.ptr, p->kind);
	size_t from_element, to_element, element, width, from_x, to_x;
	cudaError_t error = elements_of(p, &from_element, &to_element, &element);

	if (error != cudaSuccess)
		return error;
	if (__builtin_mul_overflow(p->extent.width, element, &width) ||
	    __builtin_mul_overflow(p->srcPos.x, from_element, &from_x) || __builtin_mul_overflow(p->dstPos.x, to_element, &to_x))
		return cudaErrorInvalidValue;
	if ((!p->srcArray && width > p->srcPtr.pitch) || (!p->dstArray && width > p->dstPtr.pitch))
		return cudaErrorInvalidPitchValue;
	if (p->srcArray)
		from = (struct rt_end){ .type = CU_MEMORYTYPE_ARRAY, .array = (CUarray)p->srcArray };
	if (p->dstArray)
		to = (struct rt_end){ .type = CU_MEMORYTYPE_ARRAY, .array = (CUarray)p->dstArray };
	*out = (CUDA_MEMCPY3D){
		.srcXInBytes = from_x, .srcY = p->srcPos.y, .srcZ = p->srcPos.z,
		.srcMemoryType = from.type, .srcHost = from.host, .srcDevice = from.device, .srcArray = from.array,
		.srcPitch = p->srcPtr.pitch, .srcHeight = p->srcPtr.ysize,
		.dstXInBytes = to_x, .dstY = p->dstPos.y, .dstZ = p->dstPos.z,
		.dstMemoryType = to.type, .dstHost = (void *)to.host, .dstDevice = to.device, .dstArray = to.array,
		.dstPitch = p->dstPtr.pitch, .dstHeight = p->dstPtr.ysize,
		.WidthInBytes = width, .Height = p->extent.height, .Depth = p->extent.depth,
	};
	return cudaSuccess;
}

static cudaError_t check_3d(const struct cudaMemcpy3DParms *p)
{
	if (!p)
		return cudaErrorInvalidValue;
	if (!is_kind(p->kind))
		return cudaErrorInvalidMemcpyDirection;
	if (!p->srcArray == !p->srcPtr.ptr || !p->dstArray == !p->dstPtr.ptr) /* one of both */
		return cudaErrorInvalidValue;
	return cudaSuccess;
}

cudaError_t rt_lower_copy(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *out)
{
	cudaError_t error = check_3d(params);

	return error == cudaSuccess ? lower_3d(params, out) : error;
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, struct lane lane)
{
	CUDA_MEMCPY3D copy;
	cudaError_t error = rt_lower_copy(p, &copy);

	if (error != cudaSuccess || !p->extent.width || !p->extent.height || !p->extent.depth)
		return error;
	error = rt_enter();
	if (error != cudaSuccess)
		return error;
	if (lane.wait == LANE_LEGACY)
		return rt_error(CU(cuMemcpy3D, &copy));
	return rt_settle(CU(cuMemcpy3DAsync, &copy, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), copy_3d(p, lane))
ASYNC_API(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream), copy_3d(p, lane))

/* Whose memory it is says the address; the devices must be there. */
static cudaError_t copy_3d_peer(const struct cudaMemcpy3DPeerParms *p, struct lane lane)
{
	struct cudaMemcpy3DParms copy = { .kind = cudaMemcpyDefault };
	CUcontext context;
	cudaError_t error = p ? rt_primary(p->dstDevice, &context) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		error = rt_primary(p->srcDevice, &context);
	if (error != cudaSuccess)
		return error;
	copy.srcArray = p->srcArray, copy.srcPos = p->srcPos, copy.srcPtr = p->srcPtr;
	copy.dstArray = p->dstArray, copy.dstPos = p->dstPos, copy.dstPtr = p->dstPtr;
	copy.extent = p->extent;
	return copy_3d(&copy, lane);
}

BLOCKING_API(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *p), copy_3d_peer(p, lane))
ASYNC_API(cudaMemcpy3DPeerAsync, (const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream), copy_3d_peer(p, lane))

static cudaError_t copy_peer(void *dst, int to, const void *src, int from, size_t count, struct lane lane)
{
	CUcontext target, source;
	cudaError_t error = rt_primary(to, &target);

	if (error == cudaSuccess)
		error = rt_primary(from, &source);
	if (error == cudaSuccess)
		error = rt_enter();
	if (error != cudaSuccess || !count)
		return error;
	if (lane.wait == LANE_LEGACY)
		return rt_error(CU(cuMemcpyPeer, (CUdeviceptr)dst, target, (CUdeviceptr)src, source, count));
	return rt_error(
		CU(cuMemcpyPeerAsync, (CUdeviceptr)dst, target, (CUdeviceptr)src, source, count, lane.stream));
}

API cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
	return rt_done(copy_peer(dst, dstDevice, src, srcDevice, count, (struct lane){ NULL, LANE_LEGACY }));
}

API cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
				    cudaStream_t stream)
{
	return rt_done(copy_peer(dst, dstDevice, src, srcDevice, count, lane_async(stream)));
}

_Static_assert(sizeof(struct cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes), "one and the same");

#if CUDART_VERSION >= 13000
static cudaError_t copy_batch(void *const *to, const void *const *from, const size_t *sizes, size_t count,
			      struct cudaMemcpyAttributes *attributes, size_t *first, size_t kinds, struct lane lane)
{
	return RT_CALL(cuMemcpyBatchAsync, (CUdeviceptr *)to, (CUdeviceptr *)from, (size_t *)sizes, count,
		       (CUmemcpyAttributes *)attributes, first, kinds, lane.stream);
}

ASYNC_API(cudaMemcpyBatchAsync,
	  (void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
	   struct cudaMemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, cudaStream_t stream),
	  copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, lane))

static cudaError_t copy_with(void *to, const void *from, size_t size, struct cudaMemcpyAttributes *attributes,
			     struct lane lane)
{
	size_t first = 0;

	return copy_batch(&to, &from, &size, 1, attributes, &first, 1, lane);
}

ASYNC_API(cudaMemcpyWithAttributesAsync,
	  (void *dst, const void *src, size_t size, struct cudaMemcpyAttributes *attr, cudaStream_t stream),
	  copy_with(dst, src, size, attr, lane))
#else
static cudaError_t copy_batch(void **to, void **from, size_t *sizes, size_t count, struct cudaMemcpyAttributes *attributes,
			      size_t *first, size_t kinds, size_t *failed, struct lane lane)
{
	return RT_CALL(cuMemcpyBatchAsync, (CUdeviceptr *)to, (CUdeviceptr *)from, sizes, count,
		       (CUmemcpyAttributes *)attributes, first, kinds, failed, lane.stream);
}

ASYNC_API(cudaMemcpyBatchAsync,
	  (void **dsts, void **srcs, size_t *sizes, size_t count, struct cudaMemcpyAttributes *attrs, size_t *attrsIdxs,
	   size_t numAttrs, size_t *failIdx, cudaStream_t stream),
	  copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, lane))
#endif

_Static_assert(sizeof(struct cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP) &&
		       offsetof(struct cudaMemcpy3DBatchOp, extent) == offsetof(CUDA_MEMCPY3D_BATCH_OP, extent) &&
		       offsetof(struct cudaMemcpy3DBatchOp, flags) == offsetof(CUDA_MEMCPY3D_BATCH_OP, flags),
	       "one and the same, too");

#if CUDART_VERSION >= 13000
static cudaError_t copy_batch_3d(struct cudaMemcpy3DBatchOp *list, size_t count, unsigned long long flags, struct lane lane)
{
	return RT_CALL(cuMemcpy3DBatchAsync, count, (CUDA_MEMCPY3D_BATCH_OP *)list, flags, lane.stream);
}

ASYNC_API(cudaMemcpy3DBatchAsync,
	  (size_t numOps, struct cudaMemcpy3DBatchOp *opList, unsigned long long flags, cudaStream_t stream),
	  copy_batch_3d(opList, numOps, flags, lane))
ASYNC_API(cudaMemcpy3DWithAttributesAsync, (struct cudaMemcpy3DBatchOp *op, unsigned long long flags, cudaStream_t stream),
	  copy_batch_3d(op, 1, flags, lane))
#else
static cudaError_t copy_batch_3d(struct cudaMemcpy3DBatchOp *list, size_t count, size_t *failed, unsigned long long flags,
				 struct lane lane)
{
	return RT_CALL(cuMemcpy3DBatchAsync, count, (CUDA_MEMCPY3D_BATCH_OP *)list, failed, flags, lane.stream);
}

ASYNC_API(cudaMemcpy3DBatchAsync,
	  (size_t numOps, struct cudaMemcpy3DBatchOp *opList, size_t *failIdx, unsigned long long flags, cudaStream_t stream),
	  copy_batch_3d(opList, numOps, failIdx, flags, lane))
#endif
