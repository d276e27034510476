/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host memory and a device's, cut into what frames carry. */
#include "copies.h"

#include "captures.h"

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
