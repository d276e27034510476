/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and replies of one lane, above either transport: the part of the guest side that many threads meet in. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "conn.h"
#include "lock.h"
#include "util.h"

enum { SPINS = 100, YIELDS = 800, SLEEP_NS = 50000, SLEEP_MAX_NS = 1000000, SLEEPS_PER_STEP = 16 };

static __thread char last_error[256];

void vg_conn_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last_error, sizeof(last_error), format, arguments);
	va_end(arguments);
}

const char *vg_conn_error(void)
{
	return last_error;
}

void vg_backoff(unsigned round)
{
	if (round < SPINS) {
		vg_pause();
	} else if (round < SPINS + YIELDS) {
		sched_yield();
	} else {
		unsigned step = (round - SPINS - YIELDS) / SLEEPS_PER_STEP;
		long ns = step < 5 ? (long)SLEEP_NS << step : SLEEP_MAX_NS;
		struct timespec pause = { .tv_nsec = ns < SLEEP_MAX_NS ? ns : SLEEP_MAX_NS };

		nanosleep(&pause, NULL);
	}
}

int vg_conn_lose(struct vg_conn *conn, const char *why)
{
	uint32_t expected = 0;

	if (atomic_compare_exchange_strong(&conn->losing, &expected, 1)) {
		snprintf(conn->why, sizeof(conn->why), "%s", why);
		atomic_store(&conn->lost, true);
	}
	vg_conn_say("%s", atomic_load(&conn->lost) ? conn->why : why);
	return -ECONNRESET;
}

void vg_conn_hurry(struct vg_conn *conn, unsigned milliseconds)
{
	atomic_store(&conn->until_ms, vg_now_ms() + milliseconds);
}

int vg_conn_check(struct vg_conn *conn)
{
	uint64_t until = atomic_load_explicit(&conn->until_ms, memory_order_relaxed);

	if (conn->foreign) {
		vg_conn_say("this connection belongs to the parent process");
		return -ENOTCONN;
	}
	if (atomic_load_explicit(&conn->lost, memory_order_relaxed))
		return vg_conn_lose(conn, "");
	if (until && vg_now_ms() > until)
		return vg_conn_lose(conn, "the process ends");
	return conn->ops->alive(conn) ? 0 : vg_conn_lose(conn, "the worker of this VM has ended the session");
}

bool vg_conn_read(struct vg_conn *conn)
{
	if (!vg_conn_become_reader(conn))
		return false;
	conn->ops->drain(conn);
	vg_conn_end_reading(conn);
	return true;
}

struct slot *vg_conn_slot(struct vg_conn *conn, uint32_t sequence)
{
	struct slot *slot = &conn->slot[sequence % VG_SLOTS];

	return vg_load32(&slot->state) == SLOT_WAITING && slot->sequence == sequence ? slot : NULL;
}

uint8_t *vg_slot_data(struct slot *slot, size_t length)
{
	if (length <= SLOT_INLINE)
		return slot->small;
	if (!slot->large)
		slot->large = malloc(VG_PAYLOAD_RING_MAX);
	return slot->large;
}

/* ---- frames ---- */

bool vg_conn_refuses(const struct vg_conn *conn, uint32_t op)
{
	const struct vg_interface *own = conn->interface;
	uint32_t low = 0, high = own->count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (own->words[middle] >> VG_ID_SHIFT < op)
			low = middle + 1;
		else
			high = middle;
	}
	return low < own->count && own->words[low] >> VG_ID_SHIFT == op && conn->refused[low / 64] >> low % 64 & 1;
}

static int begin(struct vg_conn *conn, uint32_t op, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
		 bool waits, struct vg_frame *frame)
{
	int error = vg_conn_check(conn);

	if (error)
		return error;
	if (conn->differs && vg_conn_refuses(conn, op))
		return -EOPNOTSUPP;
	if (payload_length > VG_PAYLOAD_RING_MAX || (direction && bulk_length > conn->bulk_max))
		return -EMSGSIZE;
	/* who has the lock may be waiting for the room that the caller's calls take */
	if (waits)
		vg_lock(&conn->lock);
	else if (!vg_try_lock(&conn->lock))
		return -EAGAIN;
	*frame = (struct vg_frame){ .payload_length = payload_length };
	if (!bulk_length)
		direction = VG_BULK_NONE;
	error = conn->ops->reserve(conn, payload_length, direction, direction ? bulk_length : 0, waits, frame);
	if (error) {
		vg_unlock(&conn->lock);
		return error;
	}
	frame->internal[0] = op;
	frame->internal[1] = direction;
	frame->internal[3] = waits;
	return 0;
}

int vg_begin(struct vg_conn *conn, uint32_t op, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
	     struct vg_frame *frame)
{
	return begin(conn, op, payload_length, direction, bulk_length, true, frame);
}

int vg_begin_ahead(struct vg_conn *conn, uint32_t op, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
		   struct vg_frame *frame)
{
	return begin(conn, op, payload_length, direction, bulk_length, false, frame);
}

void vg_cancel(struct vg_conn *conn, struct vg_frame *frame)
{
	conn->ops->cancel(conn, frame);
	vg_unlock(&conn->lock);
}

static int send_frame(struct vg_conn *conn, struct vg_frame *frame, uint32_t sequence, uint32_t flags)
{
	struct vg_frame_header header = {
		.length = VG_ALIGN + (uint32_t)frame->payload_length,
		.op = (uint32_t)frame->internal[0],
		.sequence = sequence,
		.flags = flags,
	};

	if (frame->internal[1] == VG_BULK_TO_WORKER)
		header.flags |= VG_HAS_BULK_IN;
	if (frame->internal[1] == VG_BULK_TO_GUEST)
		header.flags |= VG_HAS_BULK_OUT;
	if (frame->internal[1])
		header.bulk_length = (uint32_t)frame->bulk_length;
	return conn->ops->send(conn, &header, frame);
}

int vg_post(struct vg_conn *conn, struct vg_frame *frame)
{
	int error;

	if (frame->internal[1] == VG_BULK_TO_GUEST) {
		vg_cancel(conn, frame);
		return -EINVAL;
	}
	error = send_frame(conn, frame, 0, 0);
	vg_unlock(&conn->lock);
	return error;
}

/* Under the lock: a free slot, the one used last before all others. NULL: all wait for their replies. */
static struct slot *find_slot(struct vg_conn *conn)
{
	for (uint32_t i = 0; i < VG_SLOTS; i++) {
		uint32_t index = (conn->last_slot + i) % VG_SLOTS;

		if (vg_load32(&conn->slot[index].state) == SLOT_FREE) {
			conn->last_slot = index;
			return &conn->slot[index];
		}
	}
	return NULL;
}

/* There are more slots than threads that usually call at once, so waiting is rare. */
static int take_slot(struct vg_conn *conn, bool waits, struct slot **out)
{
	for (unsigned round = 0;; round++) {
		struct slot *slot = find_slot(conn);

		if (slot) {
			slot->sequence = ++conn->counter * VG_SLOTS + conn->last_slot;
			slot->bulk_filled = 0;
			vg_store32(&slot->state, SLOT_WAITING);
			*out = slot;
			return 0;
		}
		if (!waits)
			return -EAGAIN;
		vg_conn_read(conn);
		vg_backoff(round);
		int error = vg_conn_check(conn);

		if (error)
			return error;
	}
}

int vg_conn_await(struct vg_conn *conn, struct slot *slot)
{
	for (unsigned round = conn->relayed ? SPINS : 0; vg_load32(&slot->state) != SLOT_DONE; round++) {
		if (vg_conn_read(conn) && vg_load32(&slot->state) == SLOT_DONE)
			break;
		vg_backoff(round);
		int error = vg_conn_check(conn);

		/* an answer may have come just before the end */
		if (error && vg_load32(&slot->state) != SLOT_DONE)
			return error;
	}
	return 0;
}

int vg_call_send(struct vg_conn *conn, struct vg_frame *frame, struct vg_reply *reply)
{
	struct slot *slot;
	int error = take_slot(conn, frame->internal[3], &slot);

	if (error) {
		vg_cancel(conn, frame);
		return error;
	}
	error = send_frame(conn, frame, slot->sequence, VG_WANTS_REPLY);
	vg_conn_count_wait(conn);
	vg_unlock(&conn->lock);
	if (error)
		vg_slot_free(slot);
	*reply = (struct vg_reply){
		.internal = { error ? 0 : (uintptr_t)slot, frame->internal[1], frame->internal[2] },
	};
	return error;
}

int vg_call_wait(struct vg_conn *conn, struct vg_reply *reply)
{
	struct slot *slot = (struct slot *)(uintptr_t)reply->internal[0];
	struct vg_frame frame = { .internal = { 0, reply->internal[1], reply->internal[2] } };
	int error = vg_conn_await(conn, slot);

	if (error) {
		vg_slot_free(slot);
		reply->internal[0] = 0;
		return error;
	}
	reply->status = slot->reply.status;
	reply->length = slot->reply.length - VG_ALIGN;
	reply->data = vg_slot_data(slot, reply->length);
	reply->bulk_length = slot->reply.bulk_length;
	reply->output = slot->reply.flags & VG_HAS_OUTPUT;
	if (reply->bulk_length)
		reply->bulk = conn->ops->reply_bulk(conn, slot, &frame);
	return 0;
}

int vg_call(struct vg_conn *conn, struct vg_frame *frame, struct vg_reply *reply)
{
	int error = vg_call_send(conn, frame, reply);

	return error ? error : vg_call_wait(conn, reply);
}

void vg_reply_done(struct vg_conn *conn, struct vg_reply *reply)
{
	struct vg_frame frame = {
		.internal = { 0, reply->internal[1], reply->internal[2] },
	};

	if (conn->foreign || !reply->internal[0])
		return;
	if (frame.internal[1] == VG_BULK_TO_GUEST)
		conn->ops->bulk_done(conn, &frame);
	vg_slot_free((struct slot *)(uintptr_t)reply->internal[0]);
	reply->internal[0] = 0;
}

size_t vg_conn_bulk_max(const struct vg_conn *conn)
{
	return conn->bulk_max;
}

size_t vg_conn_piece(const struct vg_conn *conn)
{
	return conn->piece;
}

uint64_t vg_conn_waits(const struct vg_conn *conn)
{
	return atomic_load_explicit(&((struct vg_conn *)conn)->waits, memory_order_relaxed);
}

bool vg_conn_lost(const struct vg_conn *conn)
{
	return vg_conn_check((struct vg_conn *)conn) != 0;
}
