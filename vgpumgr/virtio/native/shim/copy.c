/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear copies, and the cutting of all copies into frames. Host data is taken over at the call, whatever kind of
 * memory it is in, so a copy to the device never waits. A copy to the host has arrived when the call returns: that is
 * CUDA's rule for pageable memory, and a correct if slower one for pinned memory.
 */
#include "copies.h"

#include "captures.h"
#include "graph_handles.h"
#include "hosts.h"

#include <string.h>

/* Whether a stream captures into the body of a conditional node. */
static bool is_in_body(uint64_t context, uint64_t stream)
{
	struct vg_capture_status_request in = { .context = context, .stream = stream };
	struct vg_capture_status_reply out;

	return vg_send_capture_status(&in, &out) == CUDA_SUCCESS && out.status == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
	       shim_graph_is_inside(shim_capture_graph_of(stream, out.number));
}

/* A copy with the program's memory in a graph; *done: that it was. */
CUresult shim_capture_copy(uint64_t context, uint64_t stream, const struct cuda_copy *copy, bool to_device, bool from_device,
			   bool *done)
{
	struct shim_host host = shim_host_copy(context, copy, to_device, from_device);
	CUresult r;

	*done = shim_capturing(context, stream, &r);
	if (*done && is_in_body(context, stream)) {
		SHIM_CAPTURE_REFUSE(context, stream, "a captured copy with host memory in the body of a conditional node");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return *done ? shim_capture_host(stream, &host) : r;
}

static CUresult capture_line(uint64_t context, uint64_t stream, uint64_t to, uint64_t from, size_t n, bool *done)
{
	struct cuda_copy copy = { .to = { .base = to, .pitch = n }, .from = { .base = from, .pitch = n }, .width = n,
				  .rows = 1, .slices = 1 };

	return shim_capture_copy(context, stream, &copy, shim_is_device(to), shim_is_device(from), done);
}

/* Memory of another context than the stream's takes part. */
static bool is_across(uint64_t context, uint64_t dst, uint64_t src)
{
	return shim_is_elsewhere(context, dst) || shim_is_elsewhere(context, src);
}

static CUresult across(uint64_t context, uint64_t stream, uint64_t dst, uint64_t src, size_t n)
{
	struct shim_across copy = { .to = dst, .to_pitch = n, .from = src, .from_pitch = n, .width = n, .rows = 1,
				    .to_device = shim_is_device(dst), .from_device = shim_is_device(src) };

	return shim_copy_across(context, stream, &copy);
}

static CUresult on_device(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream)
{
	struct vg_copy_device_request in = { .destination = dst, .source = src, .bytes = n };
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = shim_check_range(dst, n, 1, 1, 0);
	if (r == CUDA_SUCCESS)
		r = shim_check_range(src, n, 1, 1, 0);
	if (r != CUDA_SUCCESS || !n)
		return r;
	return is_across(in.context, dst, src) ? across(in.context, in.stream, dst, src, n) : vg_send_copy_device(&in);
}

static CUresult to_device(CUdeviceptr dst, const void *src, size_t n, CUstream hStream)
{
	struct shim_rect rect = { .device = dst, .host = (uint8_t *)src, .width = n, .rows = 1 };
	uint64_t context, stream;
	bool captured = false;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r == CUDA_SUCCESS && n && !src)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_check_range(dst, n, 1, 1, 0);
	if (r == CUDA_SUCCESS && n && is_across(context, dst, (uint64_t)src))
		return across(context, stream, dst, (uint64_t)src, n);
	if (r == CUDA_SUCCESS && n && !shim_is_device((uint64_t)src))
		r = capture_line(context, stream, dst, (uint64_t)src, n, &captured);
	else if (r == CUDA_SUCCESS && n && shim_capturing(context, stream, &r))
		return on_device(dst, (CUdeviceptr)src, n, hStream);
	return r == CUDA_SUCCESS && !captured ? shim_copy_to_device(context, stream, &rect) : r;
}

static CUresult to_host(void *dst, CUdeviceptr src, size_t n, CUstream hStream)
{
	struct shim_rect rect = { .device = src, .host = dst, .width = n, .rows = 1 };
	uint64_t context, stream;
	bool captured = false;
	CUresult r = shim_enter(&context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r == CUDA_SUCCESS && n && !dst)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_check_range(src, n, 1, 1, 0);
	if (r == CUDA_SUCCESS && n && is_across(context, (uint64_t)dst, src))
		return across(context, stream, (uint64_t)dst, src, n);
	if (r == CUDA_SUCCESS && n && !shim_is_device((uint64_t)dst))
		r = capture_line(context, stream, (uint64_t)dst, src, n, &captured);
	else if (r == CUDA_SUCCESS && n && shim_capturing(context, stream, &r))
		return on_device((CUdeviceptr)dst, src, n, hStream);
	return r == CUDA_SUCCESS && !captured ? shim_copy_to_host(context, stream, &rect) : r;
}

/* Unified addressing: what is no device memory of ours is host memory. */
static CUresult any(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream)
{
	bool to = shim_is_device(dst), from = shim_is_device(src), captured;
	uint64_t context, stream;
	CUresult r;

	if (to && from)
		return on_device(dst, src, n, hStream);
	if (to)
		return to_device(dst, (const void *)src, n, hStream);
	if (from)
		return to_host((void *)dst, src, n, hStream);
	r = shim_enter(&context);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r != CUDA_SUCCESS || !n)
		return r;
	if (!dst || !src)
		return CUDA_ERROR_INVALID_VALUE;
	r = capture_line(context, stream, dst, src, n, &captured);
	if (r != CUDA_SUCCESS || captured)
		return r;
	/* host to host, in stream order */
	r = cuStreamSynchronize(stream ? (CUstream)stream : CU_STREAM_LEGACY);
	if (r == CUDA_SUCCESS)
		memmove((void *)dst, (const void *)src, n);
	return r;
}

#define COPY(name, async, to_type, from_type, how)                                                                     \
	SHIM_API CUresult async(to_type dst, from_type src, size_t n, CUstream hStream)                                \
	{                                                                                                              \
		return how(dst, src, n, hStream);                                                                      \
	}                                                                                                              \
	SHIM_API CUresult async##_ptsz(to_type dst, from_type src, size_t n, CUstream hStream)                         \
	{                                                                                                              \
		return how(dst, src, n, hStream ? hStream : CU_STREAM_PER_THREAD);                                     \
	}                                                                                                              \
	SHIM_API CUresult name(to_type dst, from_type src, size_t n)                                                   \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		return r == CUDA_SUCCESS ? shim_ipc_settled(how(dst, src, n, CU_STREAM_LEGACY), (uint64_t)src, CU_STREAM_LEGACY) : r; \
	}                                                                                                              \
	SHIM_API CUresult name##_ptds(to_type dst, from_type src, size_t n)                                            \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		return r == CUDA_SUCCESS ? shim_ipc_settled(how(dst, src, n, CU_STREAM_PER_THREAD), (uint64_t)src, CU_STREAM_PER_THREAD) : r; \
	}

COPY(cuMemcpy, cuMemcpyAsync, CUdeviceptr, CUdeviceptr, any)
COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, to_device)
COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, to_host)
COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, on_device)

/* By contexts, whose devices must be those that have the memory. */
static CUresult peer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream hStream)
{
	struct shim_range there, here;
	CUdevice device;
	CUresult r;

	to = to ? to : (CUcontext)shim_current();
	from = from ? from : (CUcontext)shim_current();
	r = cuCtxGetDevice_v2(&device, to);
	if (r == CUDA_SUCCESS)
		r = cuCtxGetDevice_v2(&device, from);
	if (r == CUDA_SUCCESS && n && (!shim_range_find(SHIM_RANGE_DEVICE, dst, &there) || there.channel != shim_channel_of((uint64_t)to)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && n && (!shim_range_find(SHIM_RANGE_DEVICE, src, &here) || here.channel != shim_channel_of((uint64_t)from)))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? on_device(dst, src, n, hStream) : r;
}

SHIM_API CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n)
{
	return peer(dst, to, src, from, n, CU_STREAM_LEGACY);
}

SHIM_API CUresult cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n)
{
	return peer(dst, to, src, from, n, CU_STREAM_PER_THREAD);
}

SHIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n,
				    CUstream hStream)
{
	return peer(dst, to, src, from, n, hStream);
}

SHIM_API CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n,
					 CUstream hStream)
{
	return peer(dst, to, src, from, n, hStream ? hStream : CU_STREAM_PER_THREAD);
}
