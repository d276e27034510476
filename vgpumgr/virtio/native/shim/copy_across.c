/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between devices, and between contexts. Each slice has a session of its own on the host, and no session reaches another one's memory, so
 * the bytes come here and go there, piece by piece. The caller waits: before, for what the stream has to do, and at the end.
 */
#include <stdlib.h>

#include "captures.h"
#include "copies.h"

enum { ROOM = 1 << 20 };

/* Where one side is: the context and the stream that its part of the copy is done with. */
struct place {
	uint64_t context, stream;
};

/* -1: none that lives. */
static CUdevice device_of(uint64_t context)
{
	const struct shim_object *o = shim_object_get(SHIM_CONTEXT, context);

	return o ? o->ctx.device : -1;
}

/* Mappings are of all contexts of their device. */
static bool is_of(const struct shim_range *range, uint64_t context)
{
	return range->physical ? range->device == device_of(context) : range->context == context;
}

bool shim_is_elsewhere(uint64_t context, uint64_t address)
{
	struct shim_range range;

	return shim_uses_contexts() && shim_range_find(SHIM_RANGE_DEVICE, address, &range) && !is_of(&range, context);
}

static CUresult wait_for(const struct place *p)
{
	struct vg_cuStreamSynchronize_request in = { .context = p->context, .hStream = p->stream };

	return vg_send_cuStreamSynchronize(&in);
}

/* In the stream's own context that stream; in another one what a copy by that kind of stream may wait for. */
static CUresult find_place(uint64_t context, uint64_t stream, uint64_t address, struct place *p)
{
	struct shim_range range;

	*p = (struct place){ context, stream };
	if (!shim_range_find(SHIM_RANGE_DEVICE, address, &range))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_of(&range, context))
		return CUDA_SUCCESS;
	p->context = range.context ? range.context : shim_context_on(&range);
	if (!p->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return shim_stream(stream ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, &p->context, &p->stream);
}

static CUresult move(const struct shim_across *c, const struct place *to, const struct place *from, uint8_t *room)
{
	struct shim_rect up = { .device = c->from, .device_pitch = c->from_pitch, .host = room, .host_pitch = c->width,
				.width = c->width, .rows = c->rows, .present = true };
	struct shim_rect down = { .device = c->to, .device_pitch = c->to_pitch, .host = room, .host_pitch = c->width,
				  .width = c->width, .rows = c->rows, .present = true };
	CUresult r = shim_copy_to_host(from->context, from->stream, &up);

	return r == CUDA_SUCCESS ? shim_copy_to_device(to->context, to->stream, &down) : r;
}

/* Pieces of rows that fit into the room. */
static CUresult move_all(const struct shim_across *c, const struct place *to, const struct place *from)
{
	size_t width = c->width < ROOM ? c->width : ROOM, step = ROOM / width;
	uint8_t *room = malloc(width * (step < c->rows ? step : c->rows));
	CUresult r = room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (width < c->width)
		step = 1;
	for (size_t y = 0; r == CUDA_SUCCESS && y < c->rows; y += step) {
		for (size_t x = 0; r == CUDA_SUCCESS && x < c->width; x += width) {
			struct shim_across piece = *c;

			piece.to += y * c->to_pitch + x;
			piece.from += y * c->from_pitch + x;
			piece.rows = c->rows - y < step ? c->rows - y : step;
			piece.width = c->width - x < width ? c->width - x : width;
			r = move(&piece, to, from, room);
		}
	}
	free(room);
	return r;
}

static CUresult within(const struct shim_across *c, const struct place *p)
{
	struct vg_copy_device_2d_request in = { p->context, c->to, c->to_pitch, c->from, c->from_pitch, c->width, c->rows,
						p->stream };

	return vg_send_copy_device_2d(&in);
}

static CUresult with_host(const struct shim_across *c, const struct place *p)
{
	struct shim_rect rect = { c->to, c->to_pitch, (uint8_t *)c->from, c->from_pitch, c->width, c->rows, false };

	if (c->to_device)
		return shim_copy_to_device(p->context, p->stream, &rect);
	rect = (struct shim_rect){ c->from, c->from_pitch, (uint8_t *)c->to, c->to_pitch, c->width, c->rows, false };
	return shim_copy_to_host(p->context, p->stream, &rect);
}

CUresult shim_copy_across(uint64_t context, uint64_t stream, const struct shim_across *c)
{
	struct place own = { context, stream }, to = own, from = own;
	CUresult r = SHIM_CAPTURE_REFUSE(context, stream, "a copy between devices in a captured stream");

	if (r != CUDA_SUCCESS || !c->width || !c->rows)
		return r;
	if (c->to_device)
		r = find_place(context, stream, c->to, &to);
	if (r == CUDA_SUCCESS && c->from_device)
		r = find_place(context, stream, c->from, &from);
	if (r == CUDA_SUCCESS)
		r = wait_for(&own);
	if (r != CUDA_SUCCESS)
		return r;
	if (!c->to_device || !c->from_device)
		r = with_host(c, c->to_device ? &to : &from);
	else if (to.context == from.context)
		r = within(c, &to);
	else
		r = move_all(c, &to, &from);
	return r == CUDA_SUCCESS && c->to_device ? wait_for(&to) : r;
}
