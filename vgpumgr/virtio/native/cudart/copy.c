/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host and device: linear, 2D and 3D. */
#include <string.h>

#include "runtime.h"

/* A blocking call under its _ptds name is its non-blocking form on the thread's stream, and a wait. */
static cudaError_t settle(CUresult result, struct lane lane)
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
	return settle(linear_async(dst, src, count, kind, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
	     rt_copy(dst, src, count, kind, lane))
ASYNC_API(cudaMemcpyAsync,
	  (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
	  rt_copy(dst, src, count, kind, lane))

/* One end of a copy, as cuda.h's structures describe it: by address space. */
struct end {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
};

static struct end end_of(const void *ptr, bool host, bool device)
{
	if (host)
		return (struct end){ .type = CU_MEMORYTYPE_HOST, .host = ptr };
	return (struct end){ .type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
			     .device = (CUdeviceptr)ptr };
}

static struct end source_of(const void *ptr, enum cudaMemcpyKind kind)
{
	return end_of(ptr, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost,
		      kind != cudaMemcpyDefault);
}

static struct end target_of(void *ptr, enum cudaMemcpyKind kind)
{
	return end_of(ptr, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost,
		      kind != cudaMemcpyDefault);
}

static cudaError_t copy_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
			   enum cudaMemcpyKind kind, struct lane lane)
{
	struct end from = source_of(src, kind), to = target_of(dst, kind);
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = from.type, .srcHost = from.host, .srcDevice = from.device, .srcPitch = spitch,
		.dstMemoryType = to.type, .dstHost = (void *)to.host, .dstDevice = to.device, .dstPitch = dpitch,
		.WidthInBytes = width, .Height = height,
	};
	cudaError_t error;

	if (!is_kind(kind))
		return cudaErrorInvalidMemcpyDirection;
	if (width > dpitch || width > spitch)
		return cudaErrorInvalidPitchValue;
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
	return settle(CU(cuMemcpy2DAsync, &copy, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy2D,
	     (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
	      enum cudaMemcpyKind kind),
	     copy_2d(dst, dpitch, src, spitch, width, height, kind, lane))
ASYNC_API(cudaMemcpy2DAsync,
	  (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
	   enum cudaMemcpyKind kind, cudaStream_t stream),
	  copy_2d(dst, dpitch, src, spitch, width, height, kind, lane))

static CUDA_MEMCPY3D lower_3d(const struct cudaMemcpy3DParms *p)
{
	struct end from = source_of(p->srcPtr.ptr, p->kind), to = target_of(p->dstPtr.ptr, p->kind);

	return (CUDA_MEMCPY3D){
		.srcXInBytes = p->srcPos.x, .srcY = p->srcPos.y, .srcZ = p->srcPos.z,
		.srcMemoryType = from.type, .srcHost = from.host, .srcDevice = from.device,
		.srcPitch = p->srcPtr.pitch, .srcHeight = p->srcPtr.ysize,
		.dstXInBytes = p->dstPos.x, .dstY = p->dstPos.y, .dstZ = p->dstPos.z,
		.dstMemoryType = to.type, .dstHost = (void *)to.host, .dstDevice = to.device,
		.dstPitch = p->dstPtr.pitch, .dstHeight = p->dstPtr.ysize,
		.WidthInBytes = p->extent.width, .Height = p->extent.height, .Depth = p->extent.depth,
	};
}

static cudaError_t check_3d(const struct cudaMemcpy3DParms *p)
{
	if (!p)
		return cudaErrorInvalidValue;
	if (p->srcArray || p->dstArray) /* arrays cannot be made, so this is nobody's array */
		return cudaErrorNotSupported;
	if (!is_kind(p->kind))
		return cudaErrorInvalidMemcpyDirection;
	if (!p->srcPtr.ptr || !p->dstPtr.ptr)
		return cudaErrorInvalidValue;
	if (p->extent.width > p->srcPtr.pitch || p->extent.width > p->dstPtr.pitch)
		return cudaErrorInvalidPitchValue;
	return cudaSuccess;
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, struct lane lane)
{
	CUDA_MEMCPY3D copy;
	cudaError_t error = check_3d(p);

	if (error != cudaSuccess || !p->extent.width || !p->extent.height || !p->extent.depth)
		return error;
	copy = lower_3d(p);
	error = rt_enter();
	if (error != cudaSuccess)
		return error;
	if (lane.wait == LANE_LEGACY)
		return rt_error(CU(cuMemcpy3D, &copy));
	return settle(CU(cuMemcpy3DAsync, &copy, lane.stream), lane);
}

BLOCKING_API(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), copy_3d(p, lane))
ASYNC_API(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream), copy_3d(p, lane))

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
