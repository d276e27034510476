/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a lane: a ring of bytes in shared memory with one writer and one reader. Positions are private to
 * each side; the shared words only tell the other side, and what they say is checked (docs/wire-format.md).
 * Callers serialise: one thread at a time on each side of each ring.
 */
#ifndef VG_RING_H
#define VG_RING_H

#include <errno.h>

#include "wire.h"

struct vg_ring {
	uint8_t *base;
	uint32_t size;
	vg_word64 *head, *tail;
	uint64_t mine;       /* writer: bytes published; reader: bytes consumed */
	uint64_t theirs;     /* what the other side was last seen to say */
};

static inline void vg_ring_init(struct vg_ring *ring, void *base, uint32_t size, vg_word64 *head, vg_word64 *tail)
{
	*ring = (struct vg_ring){ .base = base, .size = size, .head = head, .tail = tail };
}

/* Writer: bytes to leave unused before the ring's end so that this much stands in one piece. */
static inline size_t vg_ring_pad(const struct vg_ring *ring, size_t aligned)
{
	size_t left = ring->size - (ring->mine & (ring->size - 1));

	return left < aligned ? left : 0;
}

/* Writer: is there room for a frame of this length? -EAGAIN: not now; -EBADMSG: the reader's word is nonsense. */
static inline int vg_ring_room(struct vg_ring *ring, size_t length)
{
	size_t need = vg_aligned(length);

	need += vg_ring_pad(ring, need);
	if (ring->mine + need - ring->theirs <= ring->size)
		return 0;
	uint64_t tail = vg_load64(ring->tail);

	if (ring->mine - tail > ring->size || tail - ring->theirs > ring->mine - ring->theirs)
		return -EBADMSG;
	ring->theirs = tail;
	return ring->mine + need - tail <= ring->size ? 0 : -EAGAIN;
}

/* Writer, after vg_ring_room(): where the frame goes. Nothing is published yet, and asking again gives the same. */
static inline void *vg_ring_place(const struct vg_ring *ring, size_t length)
{
	uint64_t at = ring->mine + vg_ring_pad(ring, vg_aligned(length));

	return ring->base + (at & (ring->size - 1));
}

/* Writer: publishes the frame written at vg_ring_place(), and the pad before it. */
static inline void vg_ring_publish(struct vg_ring *ring, size_t length)
{
	size_t pad = vg_ring_pad(ring, vg_aligned(length));

	if (pad) {
		struct vg_frame_header filler = { .length = (uint32_t)pad, .flags = VG_PAD };

		vg_copy_out(ring->base + (ring->mine & (ring->size - 1)), &filler, sizeof(filler));
	}
	ring->mine += pad + vg_aligned(length);
	vg_store64(ring->head, ring->mine);
}

/* Reader: as vg_ring_waiting(), of what the writer's word was when the caller looked. */
static inline int64_t vg_ring_saw(struct vg_ring *ring, uint64_t head)
{
	if (head - ring->mine > ring->size || (head & (VG_ALIGN - 1)))
		return -EBADMSG;
	ring->theirs = head;
	return (int64_t)(head - ring->mine);
}

/* Reader: bytes waiting, possibly 0; -EBADMSG if the writer's word cannot be. Looks at the word once. */
static inline int64_t vg_ring_waiting(struct vg_ring *ring)
{
	return vg_ring_saw(ring, vg_load64(ring->head));
}

/*
 * Reader: copies the next header, checks its length against what waits, and steps over a pad (then -EAGAIN: look
 * again). No pad stands at the ring's beginning, so none follows another. On 0, vg_ring_payload() is where the payload
 * stands. -EBADMSG: nonsense.
 */
static inline int vg_ring_next(struct vg_ring *ring, void *header)
{
	struct vg_frame_header *copy = header;
	uint64_t waiting = ring->theirs - ring->mine;
	size_t left = ring->size - (ring->mine & (ring->size - 1));

	vg_fetch(copy, ring->base + (ring->mine & (ring->size - 1)), sizeof(*copy));
	if (copy->flags & VG_PAD) {
		if (copy->flags != VG_PAD || copy->length != left || left > waiting || left == ring->size)
			return -EBADMSG;
		ring->mine += left;
		return -EAGAIN;
	}
	if (copy->length < VG_ALIGN || copy->length > VG_BODY_MAX)
		return -EBADMSG;
	if (vg_aligned(copy->length) > waiting || vg_aligned(copy->length) > left)
		return -EBADMSG;
	return 0;
}

static inline const void *vg_ring_payload(const struct vg_ring *ring)
{
	return ring->base + (ring->mine & (ring->size - 1)) + VG_ALIGN;
}

/* Reader: done with the frame of this length; vg_ring_release() tells the writer. */
static inline void vg_ring_consume(struct vg_ring *ring, uint32_t length)
{
	ring->mine += vg_aligned(length);
}

static inline void vg_ring_release(struct vg_ring *ring)
{
	vg_store64(ring->tail, ring->mine);
}

#endif
