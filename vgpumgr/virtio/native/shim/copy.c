/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear copies, and the cutting of all copies into frames. Host data is taken over at the call, whatever kind of
 * memory it is in, so a copy to the device never waits. A copy to the host has arrived when the call returns: that is
 * CUDA's rule for pageable memory, and a correct if slower one for pinned memory.
 */
#include "copy.h"

#include "captures.h"
#include "hosts.h"

#include <string.h>

size_t shim_piece(unsigned channel)
{
	CUresult why;
	struct vg_conn *conn = shim_conn(channel, &why);
	size_t most = conn ? vg_conn_piece(conn) : 0;

	return most ? most : VG_PAYLOAD_RING_MAX;
}

/* Moves one piece that fits into a frame. */
static CUresult send_piece(void *none, uint64_t context, uint64_t stream, const struct shim_rect *p)
{
	struct shim_bulk bulk = { VG_BULK_TO_WORKER, p->host, p->width, p->rows, p->host_pitch, p->present };
	struct vg_copy_to_device_request line = { context, p->device, stream };
	struct vg_copy_to_device_2d_request rect = { context, p->device, p->device_pitch, p->width, p->rows, stream };

	(void)none;
	return p->rows == 1 ? vg_send_copy_to_device(&line, &bulk) : vg_send_copy_to_device_2d(&rect, &bulk);
}

/* Pieces on their way to the host: while one is copied out of the window, the next ones are filled. */
enum { AHEAD = 3 };
struct fetches {
	struct fetch {
		struct shim_frame frame;
		struct shim_bulk bulk;
	} at[AHEAD];
	unsigned first, count;
};

static CUresult end_fetch(struct fetches *fetches)
{
	struct shim_frame *f = &fetches->at[fetches->first].frame;

	fetches->first = (fetches->first + 1) % AHEAD;
	fetches->count--;
	return shim_end(f, shim_await(f), false);
}

static CUresult begin_fetch(struct fetches *fetches, uint64_t context, uint64_t stream, const struct shim_rect *p)
{
	struct fetch *fetch = &fetches->at[(fetches->first + fetches->count) % AHEAD];
	enum shim_send_kind kind = fetches->count ? SHIM_AHEAD : SHIM_FIRST;
	struct vg_copy_to_host_request line = { context, p->device, stream };
	struct vg_copy_to_host_2d_request rect = { context, p->device, p->device_pitch, p->width, p->rows, stream };
	struct shim_frame *f = &fetch->frame;
	CUresult r;

	fetch->bulk = (struct shim_bulk){ VG_BULK_TO_GUEST, p->host, p->width, p->rows, p->host_pitch, p->present };
	if (p->rows == 1)
		r = shim_begin(f, shim_channel_of(context), VG_OP_copy_to_host, kind, vg_size_copy_to_host_request(&line), &fetch->bulk);
	else
		r = shim_begin(f, shim_channel_of(context), VG_OP_copy_to_host_2d, kind, vg_size_copy_to_host_2d_request(&rect), &fetch->bulk);
	if (r != CUDA_SUCCESS)
		return r;
	if (p->rows == 1)
		vg_put_copy_to_host_request(&f->encoder, &line);
	else
		vg_put_copy_to_host_2d_request(&f->encoder, &rect);
	r = shim_send(f);
	fetches->count += r == CUDA_SUCCESS;
	return r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY ? r : shim_end(f, r, false);
}

static CUresult fetch_piece(void *fetches, uint64_t context, uint64_t stream, const struct shim_rect *piece)
{
	struct fetches *all = fetches;
	CUresult r = all->count < AHEAD ? begin_fetch(all, context, stream, piece) : CUDA_ERROR_NOT_READY;

	while (r == CUDA_ERROR_NOT_READY && all->count) {
		r = end_fetch(all);
		if (r != CUDA_SUCCESS)
			return r;
		r = begin_fetch(all, context, stream, piece);
	}
	return r;
}

typedef CUresult piece_fn(void *state, uint64_t context, uint64_t stream, const struct shim_rect *piece);

/* One row that is longer than a frame's bulk. */
static CUresult cut_row(uint64_t context, uint64_t stream, const struct shim_rect *row, piece_fn *move, void *state)
{
	size_t most = shim_piece(shim_channel_of(context));
	CUresult r = CUDA_SUCCESS;

	for (size_t at = 0; r == CUDA_SUCCESS && at < row->width; at += most) {
		size_t n = row->width - at < most ? row->width - at : most;
		struct shim_rect piece = { .device = row->device + at, .host = row->host + at, .width = n, .rows = 1,
					   .host_pitch = n, .present = row->present };

		r = move(state, context, stream, &piece);
	}
	return r;
}

static CUresult cut(uint64_t context, uint64_t stream, const struct shim_rect *rect, piece_fn *move, void *state)
{
	struct shim_rect whole = *rect;
	size_t most = shim_piece(shim_channel_of(context)), step;
	CUresult r = CUDA_SUCCESS;

	if (!whole.width || !whole.rows)
		return CUDA_SUCCESS;
	if (whole.rows > 1 && whole.device_pitch == whole.width && whole.host_pitch == whole.width) {
		whole.width *= whole.rows; /* no gaps: one long row */
		whole.rows = 1;
	}
	step = whole.width > most ? 1 : most / whole.width;
	for (size_t at = 0; r == CUDA_SUCCESS && at < whole.rows; at += step) {
		struct shim_rect piece = whole;

		piece.device += at * whole.device_pitch;
		piece.host += at * whole.host_pitch;
		piece.rows = whole.rows - at < step ? whole.rows - at : step;
		if (piece.rows == 1)
			r = cut_row(context, stream, &piece, move, state);
		else
			r = move(state, context, stream, &piece);
	}
	return r;
}

/* A copy with the program's memory in a graph; *done: that it was. */
CUresult shim_capture_copy(uint64_t context, uint64_t stream, const struct cuda_copy *copy, bool to_device, bool from_device,
			   bool *done)
{
	struct shim_host host = shim_host_copy(context, copy, to_device, from_device);
	CUresult r;

	*done = shim_capturing(context, stream, &r);
	return *done ? shim_capture_host(stream, &host) : r;
}

static CUresult capture_line(uint64_t context, uint64_t stream, uint64_t to, uint64_t from, size_t n, bool *done)
{
	struct cuda_copy copy = { .to = { .base = to, .pitch = n }, .from = { .base = from, .pitch = n }, .width = n,
				  .rows = 1, .slices = 1 };

	return shim_capture_copy(context, stream, &copy, shim_is_device(to), shim_is_device(from), done);
}

CUresult shim_copy_to_device(uint64_t context, uint64_t stream, const struct shim_rect *rect)
{
	CUresult r = SHIM_CAPTURE_REFUSE(context, stream, "host memory in a captured stream");

	return r == CUDA_SUCCESS ? cut(context, stream, rect, send_piece, NULL) : r;
}

CUresult shim_copy_to_host(uint64_t context, uint64_t stream, const struct shim_rect *rect)
{
	CUresult r = SHIM_CAPTURE_REFUSE(context, stream, "host memory in a captured stream"), end;
	struct fetches fetches;

	if (r != CUDA_SUCCESS)
		return r;
	fetches.first = fetches.count = 0;
	r = cut(context, stream, rect, fetch_piece, &fetches);
	while (fetches.count) {
		end = end_fetch(&fetches);
		r = r == CUDA_SUCCESS ? end : r;
	}
	return r;
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
		return r == CUDA_SUCCESS ? how(dst, src, n, CU_STREAM_LEGACY) : r;                                     \
	}                                                                                                              \
	SHIM_API CUresult name##_ptds(to_type dst, from_type src, size_t n)                                            \
	{                                                                                                              \
		CUresult r = shim_capture_safe();                                                                      \
                                                                                                                       \
		return r == CUDA_SUCCESS ? how(dst, src, n, CU_STREAM_PER_THREAD) : r;                                 \
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
