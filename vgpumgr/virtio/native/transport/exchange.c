/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of a few words each way, as most are that a program waits for, and a call of a few words without an answer. Both
 * keep every rule of the calls in conn.c and leave out what only other calls need; whatever is out of the ordinary (a lost session, a full or wrapping ring,
 * another thread that reads the replies, a late answer) is theirs.
 */
#include "conn.h"
#include "lock.h"

/* A few microseconds, in which most replies come. Without pauses: one ends a processor's emulation for a while. */
enum { POLLS = 512 };

#define USUALLY(condition) __builtin_expect(!!(condition), 1)

static inline bool is_open(struct vg_conn *conn)
{
	return conn->ops == &vg_ring_ops && !conn->foreign &&
	       !atomic_load_explicit(&conn->lost, memory_order_relaxed) && vg_ring_alive(conn);
}

/* Under the lock: where a frame goes, or NULL if there is no plain room for it. */
static inline uint8_t *frame_place(const struct vg_ring *ring, size_t need)
{
	uint32_t at = (uint32_t)ring->mine & (ring->size - 1);

	return ring->size - at >= need && ring->mine + need - ring->theirs <= ring->size ? ring->base + at : NULL;
}

static inline void put_frame(uint8_t *place, uint32_t op, uint32_t flags, uint32_t sequence, const uint64_t *request,
			     size_t length)
{
	uint64_t *words = (uint64_t *)place;

	/* a vg_frame_header */
	words[0] = (uint64_t)op << 32 | (VG_ALIGN + (uint32_t)length);
	words[1] = (uint64_t)flags << 32 | sequence;
	words[2] = 0;
	words[3] = 0;
	words += 4;
	for (; length >= 4 * sizeof(*words); length -= 4 * sizeof(*words), words += 4, request += 4)
		memcpy(words, request, 4 * sizeof(*words));
	for (size_t i = 0; i < length / sizeof(*words); i++)
		words[i] = request[i];
}

/* The slot that the reply will be for; NULL: nothing has been sent. */
static inline struct slot *submit(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length)
{
	struct vg_ring *ring = &conn->ring.submit;
	struct vg_control *control = conn->ring.control;
	size_t need = vg_aligned(VG_ALIGN + length);
	struct slot *slot;
	uint32_t sequence;
	uint8_t *place;

	vg_lock(&conn->lock);
	slot = &conn->slot[conn->last_slot];
	place = frame_place(ring, need);
	if (!USUALLY(place && vg_load32(&slot->state) == SLOT_FREE)) {
		vg_unlock(&conn->lock);
		return NULL;
	}
	sequence = ++conn->counter * VG_SLOTS + conn->last_slot;
	slot->sequence = sequence;
	vg_store32(&slot->state, SLOT_WAITING);
	put_frame(place, op, VG_WANTS_REPLY, sequence, request, length);
	ring->mine += need;
	vg_store64(&control->submit_head, ring->mine);
	vg_conn_count_wait(conn);
	vg_unlock(&conn->lock); /* and the full fence between publishing and this: */
	if (!USUALLY(!vg_load32(&control->parked)))
		vg_ring_doorbell(&conn->ring);
	return slot;
}

/* The reader's: takes the next reply if it is this slot's and needs no care; `waiting` bytes wait, as was checked. */
static inline bool take_own(struct vg_ring *ring, uint64_t waiting, const struct slot *slot, struct vg_words *reply)
{
	uint32_t at = (uint32_t)ring->mine & (ring->size - 1);
	const uint8_t *place = ring->base + at;
	uint64_t words[2]; /* of the vg_reply_header; the others are about bulk */
	uint32_t length;

	vg_fetch(words, place, sizeof(words));
	length = (uint32_t)words[0];
	if (!USUALLY(words[1] == slot->sequence)) /* and has no flags */
		return false;
	if (!USUALLY(length == VG_ALIGN + reply->room || length == VG_ALIGN))
		return false;
	if (!USUALLY(vg_aligned(length) <= waiting && vg_aligned(length) <= ring->size - at))
		return false;
	reply->status = (int32_t)(words[0] >> 32);
	reply->length = length - VG_ALIGN;
	vg_fetch(reply->at, place + VG_ALIGN, reply->length);
	vg_ring_consume(ring, length);
	return true;
}

static inline bool receive(struct vg_conn *conn, struct slot *slot, struct vg_words *reply)
{
	struct vg_ring *ring = &conn->ring.reply;
	struct vg_control *control = conn->ring.control;
	uint64_t mine, head;
	bool got;

	if (!USUALLY(vg_conn_become_reader(conn)))
		return false;
	mine = ring->mine;
	head = vg_load64(&control->reply_head);
	for (unsigned i = POLLS; i && head == mine; i--)
		head = vg_load64(&control->reply_head);
	got = vg_ring_saw(ring, head) > 0 && take_own(ring, head - mine, slot, reply);
	if (USUALLY(got)) {
		vg_store64(&control->reply_tail, ring->mine);
		conn->ring.idle = 0;
		vg_slot_free(slot);
	}
	vg_conn_end_reading(conn);
	return got;
}

static void keep_words(struct vg_words *reply, int32_t status, const void *data, size_t length)
{
	reply->status = status;
	reply->length = length;
	if (length && length == reply->room)
		memcpy(reply->at, data, length);
}

__attribute__((cold, noinline)) static int wait_for_words(struct vg_conn *conn, struct slot *slot,
							  struct vg_words *reply)
{
	int error = vg_conn_await(conn, slot);

	if (!error) {
		size_t length = slot->reply.length - VG_ALIGN;

		keep_words(reply, slot->reply.status, vg_slot_data(slot, length), length);
		reply->output = slot->reply.flags & VG_HAS_OUTPUT;
	}
	vg_slot_free(slot);
	return error;
}

__attribute__((cold, noinline)) static int the_long_way(struct vg_conn *conn, uint32_t op, const uint64_t *request,
							size_t length, struct vg_words *reply)
{
	struct vg_frame frame;
	struct vg_reply got;
	int error = vg_begin(conn, op, length, VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	if (length)
		memcpy(frame.payload, request, length);
	error = vg_call(conn, &frame, &got);
	if (error)
		return error;
	keep_words(reply, got.status, got.data, got.length);
	reply->output = got.output;
	vg_reply_done(conn, &got);
	return 0;
}

int vg_exchange(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length, struct vg_words *reply)
{
	struct slot *slot;

	if (!USUALLY(!conn->differs) && vg_conn_refuses(conn, op))
		return -EOPNOTSUPP;
	slot = USUALLY(is_open(conn)) ? submit(conn, op, request, length) : NULL;
	if (!USUALLY(slot))
		return the_long_way(conn, op, request, length, reply);
	return USUALLY(receive(conn, slot, reply)) ? 0 : wait_for_words(conn, slot, reply);
}

static inline bool post(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length)
{
	struct vg_ring *ring = &conn->ring.submit;
	struct vg_control *control = conn->ring.control;
	size_t need = vg_aligned(VG_ALIGN + length);
	uint8_t *place;

	vg_lock(&conn->lock);
	place = frame_place(ring, need);
	if (!USUALLY(place)) {
		vg_unlock(&conn->lock);
		return false;
	}
	put_frame(place, op, 0, 0, request, length);
	ring->mine += need;
	vg_store64(&control->submit_head, ring->mine);
	vg_unlock(&conn->lock); /* and the full fence between publishing and this: */
	if (!USUALLY(!vg_load32(&control->parked)))
		vg_ring_doorbell(&conn->ring);
	return true;
}

__attribute__((cold, noinline)) static int post_the_long_way(struct vg_conn *conn, uint32_t op, const uint64_t *request,
							     size_t length)
{
	struct vg_frame frame;
	int error = vg_begin(conn, op, length, VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	if (length)
		memcpy(frame.payload, request, length);
	return vg_post(conn, &frame);
}

int vg_post_words(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length)
{
	if (!USUALLY(!conn->differs) && vg_conn_refuses(conn, op))
		return -EOPNOTSUPP;
	return USUALLY(is_open(conn)) && USUALLY(post(conn, op, request, length)) ? 0 : post_the_long_way(conn, op, request, length);
}
