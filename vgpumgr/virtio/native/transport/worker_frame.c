/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from the guest, each copied once and then checked, and the answers to them. */
#include <stdlib.h>
#include <time.h>

#include "lock.h"
#include "worker.h"

/* A guest that leaves its reply ring full for so long does not want its replies. */
enum { FULL_LIMIT_MS = 10000, FULL_STEP_NS = 100000 };

static int accept_bulk(struct vg_lane *lane, const struct vg_frame_header *header, struct vg_call *call)
{
	uint32_t direction = header->flags & (VG_HAS_BULK_IN | VG_HAS_BULK_OUT);

	if (!direction)
		return header->bulk_length || header->bulk_offset ? -EPROTO : 0;
	if (direction == (VG_HAS_BULK_IN | VG_HAS_BULK_OUT))
		return -EPROTO;
	if (direction == VG_HAS_BULK_OUT && !(header->flags & VG_WANTS_REPLY))
		return -EPROTO;
	if (lane->ring) {
		if ((uint64_t)header->bulk_offset + header->bulk_length > lane->window_size)
			return -EPROTO;
	} else if (header->bulk_offset || header->bulk_length > VG_SERIAL_BULK_MAX) {
		return -EPROTO;
	}
	if (direction == VG_HAS_BULK_OUT) {
		call->bulk_out_length = header->bulk_length;
		call->bulk_out = lane->ring ? lane->window + header->bulk_offset : calloc(1, header->bulk_length + 1);
		return call->bulk_out ? 0 : -ENOMEM;
	}
	if (!lane->ring && lane->bulk_filled != header->bulk_length)
		return -EPROTO;
	call->bulk_in_length = header->bulk_length;
	call->bulk_in = lane->ring ? lane->window + header->bulk_offset : lane->bulk;
	return 0;
}

static int accept_reply(struct vg_lane *lane, const struct vg_call *call)
{
	struct pending *pending = &lane->pending[call->sequence % VG_SLOTS];

	if (atomic_load_explicit(&pending->busy, memory_order_acquire))
		return -EPROTO;
	pending->sequence = call->sequence;
	pending->bulk = call->bulk_out;
	pending->bulk_length = (uint32_t)call->bulk_out_length;
	atomic_store_explicit(&pending->busy, true, memory_order_release);
	return 0;
}

int vg_frame_accept(struct vg_lane *lane, const struct vg_frame_header *header, struct vg_call *call,
		    const char **text)
{
	int error;

	*call = (struct vg_call){
		.op = header->op,
		.sequence = header->sequence,
		.wants_reply = header->flags & VG_WANTS_REPLY,
		.payload = lane->payload,
		.payload_length = header->length - VG_ALIGN,
	};
	if ((header->flags & ~(uint32_t)VG_FLAGS_KNOWN) || header->zero) {
		*text = "unknown flags";
		return -EPROTO;
	}
	error = accept_bulk(lane, header, call);
	if (error) {
		*text = "bulk outside of its window";
		return error;
	}
	if (call->wants_reply && accept_reply(lane, call)) {
		if (!lane->ring)
			free(call->bulk_out);
		*text = "a sequence number used twice";
		return -EPROTO;
	}
	struct vg_lane_stats *stats = lane->stats;

	if (stats) {
		vg_word64 *count = call->wants_reply ? &stats->calls : &stats->posts;

		atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
				      memory_order_relaxed);
		atomic_store_explicit(&stats->bytes_in,
				      atomic_load_explicit(&stats->bytes_in, memory_order_relaxed) + header->length +
					      call->bulk_in_length,
				      memory_order_relaxed);
	}
	return 0;
}

int vg_ring_take(struct vg_lane *lane, struct vg_call *call, const char **text)
{
	struct vg_ring *ring = &lane->submit;
	struct vg_frame_header header;
	int error = -EAGAIN;

	while (error == -EAGAIN) {
		if (ring->mine == ring->theirs) {
			int64_t waiting = vg_ring_waiting(ring);

			if (waiting <= 0) {
				*text = "a submission index that cannot be";
				return (int)waiting;
			}
		}
		error = vg_ring_next(ring, &header);
	}
	if (error) {
		*text = "a frame of impossible length";
		return error;
	}
	vg_copy_in(lane->payload, vg_ring_payload(ring), header.length - VG_ALIGN);
	vg_ring_consume(ring, header.length);
	error = vg_frame_accept(lane, &header, call, text);
	return error ? error : 1;
}

/* ---- the serial stream: a lane's messages ---- */

static int collect_bulk(struct vg_lane *lane, const uint8_t *body, uint32_t length)
{
	if (!lane->bulk)
		lane->bulk = malloc(VG_SERIAL_BULK_MAX);
	if (!lane->bulk || lane->bulk_filled + length > VG_SERIAL_BULK_MAX)
		return -EPROTO;
	memcpy(lane->bulk + lane->bulk_filled, body, length);
	lane->bulk_filled += length;
	return 0;
}

static int take_frame(struct vg_lane *lane, const uint8_t *body, uint32_t length, struct vg_call *call,
		      const char **text)
{
	struct vg_frame_header header;
	int error;

	*text = "a frame of impossible length";
	if (length < VG_ALIGN || length > VG_BODY_MAX)
		return -EPROTO;
	memcpy(&header, body, sizeof(header));
	if (header.length != length)
		return -EPROTO;
	memcpy(lane->payload, body + VG_ALIGN, length - VG_ALIGN);
	error = vg_frame_accept(lane, &header, call, text);
	return error ? error : 1;
}

int vg_serial_take(struct vg_lane *lane, const struct vg_message *message, const uint8_t *body, struct vg_call *call,
		   const char **text)
{
	*text = "bulk larger than allowed";
	if (message->kind == VG_KIND_BULK)
		return collect_bulk(lane, body, message->length);
	return take_frame(lane, body, message->length, call, text);
}

/* ---- answers ---- */

static bool wait_for_reader(struct vg_lane *lane, unsigned round)
{
	struct timespec pause = { .tv_nsec = FULL_STEP_NS };

	/* lane 0 is the server's, which never waits */
	if (vg_lane_closing(lane) || !lane->number)
		return false;
	if (round * (uint64_t)FULL_STEP_NS > FULL_LIMIT_MS * 1000000ull) {
		vg_violation(lane, "a reply ring left full");
		vg_lane_close(lane);
		return false;
	}
	nanosleep(&pause, NULL);
	return true;
}

static int answer_ring(struct vg_lane *lane, const struct vg_reply_header *header, const void *data)
{
	struct vg_ring *ring = &lane->reply;
	uint8_t *place;
	int error;

	for (unsigned round = 0; (error = vg_ring_room(ring, header->length)); round++) {
		if (error == -EBADMSG) {
			vg_violation(lane, "a reply index that cannot be");
			vg_lane_close(lane);
			return -ECONNRESET;
		}
		if (!wait_for_reader(lane, round))
			return -ECONNRESET;
	}
	place = vg_ring_place(ring, header->length);
	vg_copy_out(place + VG_ALIGN, data, header->length - VG_ALIGN);
	vg_copy_out(place, header, sizeof(*header));
	vg_ring_publish(ring, header->length);
	return 0;
}

static int answer_serial(struct vg_lane *lane, const struct vg_reply_header *header, const void *data,
			 const uint8_t *bulk)
{
	enum { PIECE = 16384 };
	int error = 0;

	for (size_t at = 0; at < header->bulk_length && !error; at += PIECE) {
		size_t part = header->bulk_length - at < PIECE ? header->bulk_length - at : PIECE;

		error = vg_serial_send(lane, VG_KIND_BULK, &header->sequence, sizeof(header->sequence), bulk + at,
				       part);
	}
	if (!error)
		error = vg_serial_send(lane, VG_KIND_REPLY, header, sizeof(*header), data,
				       header->length - VG_ALIGN);
	return error;
}

static int answer_locked(struct vg_lane *lane, const struct vg_reply_header *header, const void *data)
{
	struct pending *pending = &lane->pending[header->sequence % VG_SLOTS];
	struct vg_lane_stats *stats = lane->stats;
	uint8_t *bulk;
	int error;

	if (!atomic_load_explicit(&pending->busy, memory_order_acquire) || pending->sequence != header->sequence)
		return -ENOENT;
	bulk = pending->bulk;
	error = header->bulk_length > pending->bulk_length ? -EMSGSIZE : vg_lane_closing(lane) ? -ECONNRESET : 0;
	atomic_store_explicit(&pending->busy, false, memory_order_release);
	if (!error)
		error = lane->ring ? answer_ring(lane, header, data) : answer_serial(lane, header, data, bulk);
	if (!lane->ring)
		free(bulk);
	if (stats && !error)
		vg_store64(&stats->bytes_out, vg_load64(&stats->bytes_out) + header->length + header->bulk_length);
	return error;
}

int vg_answer(struct vg_lane *lane, uint32_t sequence, int32_t status, const void *data, size_t length,
	      size_t bulk_length)
{
	struct vg_reply_header header = {
		.length = VG_ALIGN + (uint32_t)length,
		.status = status,
		.sequence = sequence,
		.flags = (bulk_length ? VG_HAS_BULK_OUT : 0) |
			 (atomic_load_explicit(&lane->output, memory_order_relaxed) ? VG_HAS_OUTPUT : 0),
		.bulk_length = (uint32_t)bulk_length,
	};
	int error;

	if (length > VG_PAYLOAD_RING_MAX || bulk_length > UINT32_MAX)
		return -EMSGSIZE;
	vg_lock(&lane->answer_lock);
	error = answer_locked(lane, &header, data);
	vg_unlock(&lane->answer_lock);
	return error;
}

void vg_pending_drop(struct vg_lane *lane)
{
	vg_lock(&lane->answer_lock);
	for (unsigned i = 0; i < VG_SLOTS; i++) {
		if (lane->pending[i].busy && !lane->ring)
			free(lane->pending[i].bulk);
		lane->pending[i].busy = false;
	}
	vg_unlock(&lane->answer_lock);
}
