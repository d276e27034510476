/* SPDX-License-Identifier: Apache-2.0 */
/* The guest side over shared memory: rings, the bulk window's blocks, the doorbell. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "conn.h"

/* The worker's main thread beats several times a second; this long a silence means that nobody is there at all. */
enum { SILENCE_S = 30 };
/* A pause is dear where the processor is emulated: it ends a run of translated code. */
enum { POLLS = 128, POLLS_PER_PAUSE = 32 };
/* Long copies: pieces, and how much of them is on its way if the worker keeps up. Measured: bench/channel.py. */
enum { PIECE = 256 << 10, CACHED = 768 << 10 };
/* Rounds of vg_backoff() without spinning, for a piece takes longer than that, and without sleeping */
enum { CATCH_UP_FIRST = 100, CATCH_UP_LAST = 400 };

bool vg_ring_alive(struct vg_conn *conn)
{
	struct conn_ring *ring = &conn->ring;

	return !vg_load32(ring->guard) && vg_load64(&ring->control->life) == conn->generation;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both keeper and worker were killed at one stroke, so that nobody could write `life`. Under the reader's role. */
static void watch_heartbeat(struct vg_conn *conn)
{
	struct conn_ring *ring = &conn->ring;
	uint64_t beat = vg_load64(&ring->header->heartbeat), now = now_ns();

	if (beat != ring->heartbeat || !ring->heartbeat_at_ns) {
		ring->heartbeat = beat;
		ring->heartbeat_at_ns = now;
	} else if (now - ring->heartbeat_at_ns > SILENCE_S * 1000000000ull) {
		vg_conn_lose(conn, "the host's side of the channel has gone silent");
	}
}

static void take_reply(struct vg_conn *conn, const struct vg_reply_header *header)
{
	struct vg_ring *ring = &conn->ring.reply;
	struct slot *slot = vg_conn_slot(conn, header->sequence);
	size_t length = header->length - VG_ALIGN;
	uint8_t *data = slot ? vg_slot_data(slot, length) : NULL;

	if (data) {
		vg_copy_in(data, vg_ring_payload(ring), length);
		slot->reply = *header;
	}
	vg_ring_consume(ring, header->length);
	vg_ring_release(ring);
	if (data)
		vg_store32(&slot->state, SLOT_DONE);
	else
		vg_conn_lose(conn, slot ? "out of memory for a reply" : "the worker answered what was not asked");
}

static void ring_drain(struct vg_conn *conn)
{
	struct vg_ring *ring = &conn->ring.reply;
	struct vg_reply_header header;
	int64_t waiting = vg_ring_waiting(ring);

	while (waiting > 0 && ring->mine != ring->theirs && !atomic_load_explicit(&conn->lost, memory_order_relaxed)) {
		int error = vg_ring_next(ring, &header);

		if (!error)
			take_reply(conn, &header);
		else if (error == -EBADMSG)
			waiting = error;
	}
	if (waiting < 0)
		vg_conn_lose(conn, "the lane's reply ring is damaged");
}

/* ---- the window ---- */

static void reclaim(struct conn_ring *ring)
{
	uint64_t tail = vg_load64(&ring->control->submit_tail);

	while (ring->pending_count && ring->pending[ring->pending_first].end <= tail) {
		atomic_fetch_or(&ring->blocks, ring->pending[ring->pending_first].mask);
		ring->on_its_way -= ring->pending[ring->pending_first].bytes;
		ring->pending_first = (ring->pending_first + 1) % PENDING_BULK;
		ring->pending_count--;
	}
}

/* A run of free blocks for this many bytes; 0: none now. */
static uint64_t take_blocks(struct conn_ring *ring, size_t bytes)
{
	unsigned count = (unsigned)((bytes + ring->layout.block_size - 1) / ring->layout.block_size);
	uint64_t free = atomic_load(&ring->blocks), starts = free, mask;

	for (unsigned i = 1; i < count; i++)
		starts &= free >> i;
	if (!starts)
		return 0;
	mask = (count == 64 ? ~0ull : (1ull << count) - 1) << __builtin_ctzll(starts);
	atomic_fetch_and(&ring->blocks, ~mask);
	return mask;
}

static size_t block_offset(const struct conn_ring *ring, uint64_t mask)
{
	return (size_t)__builtin_ctzll(mask) * ring->layout.block_size;
}

/* ---- frames ---- */

/* One round of waiting for the worker to make room; replies are taken meanwhile, or both sides would wait. */
static int wait_for_room(struct vg_conn *conn, unsigned round)
{
	vg_conn_read(conn);
	vg_backoff(round);
	return vg_conn_check(conn);
}

/*
 * What is on its way stays within a processor's own cache where the worker keeps up: it reads the bytes there, and the next
 * ones are written there. Where it does not (its device is busy), the rest of the window is used, too.
 */
static int let_worker_catch_up(struct vg_conn *conn, size_t bulk_length)
{
	struct conn_ring *ring = &conn->ring;
	int error = 0;

	for (unsigned round = CATCH_UP_FIRST; !error && ring->on_its_way + bulk_length > CACHED; round++) {
		size_t before = ring->on_its_way;

		if (!ring->pending_count || ring->pending[ring->pending_first].end == ring->stalled)
			return 0;
		if (round == CATCH_UP_LAST) {
			ring->stalled = ring->pending[ring->pending_first].end;
			return 0;
		}
		error = wait_for_room(conn, round);
		reclaim(ring);
		if (ring->on_its_way != before)
			round = CATCH_UP_FIRST;
	}
	return error;
}

static int ring_reserve(struct vg_conn *conn, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
			bool waits, struct vg_frame *frame)
{
	struct conn_ring *ring = &conn->ring;
	size_t length = VG_ALIGN + payload_length;
	uint64_t mask = 0;
	int error;

	for (unsigned round = 0; (error = vg_ring_room(&ring->submit, length)); round++) {
		if (error == -EAGAIN && !waits)
			return error;
		error = error == -EAGAIN ? wait_for_room(conn, round) : vg_conn_lose(conn, "the lane is damaged");
		if (error)
			return error;
	}
	reclaim(ring);
	if (direction == VG_BULK_TO_WORKER && ring->on_its_way + bulk_length > CACHED) {
		error = let_worker_catch_up(conn, bulk_length);
		if (error)
			return error;
	}
	for (unsigned round = 0; direction; round++) {
		reclaim(ring);
		mask = ring->pending_count < PENDING_BULK ? take_blocks(ring, bulk_length) : 0;
		if (mask)
			break;
		if (!waits)
			return -EAGAIN;
		error = wait_for_room(conn, round);
		if (error)
			return error;
	}
	frame->payload = (uint8_t *)vg_ring_place(&ring->submit, length) + VG_ALIGN;
	frame->bulk_length = bulk_length;
	frame->internal[2] = mask;
	if (direction == VG_BULK_TO_WORKER)
		frame->bulk = ring->window + block_offset(ring, mask);
	return 0;
}

void vg_ring_doorbell(struct conn_ring *ring)
{
	uint64_t one = 1;

	if (ring->bar)
		*ring->bar = VG_DOORBELL_VALUE;
	else
		while (write(ring->eventfd, &one, sizeof(one)) < 0 && errno == EINTR)
			continue;
}

static int ring_send(struct vg_conn *conn, struct vg_frame_header *header, struct vg_frame *frame)
{
	struct conn_ring *ring = &conn->ring;
	uint64_t mask = frame->internal[2];

	if (mask)
		header->bulk_offset = (uint32_t)block_offset(ring, mask);
	vg_copy_out((uint8_t *)frame->payload - VG_ALIGN, header, sizeof(*header));
	vg_ring_publish(&ring->submit, header->length);
	if (header->flags & VG_HAS_BULK_IN) {
		uint32_t last = (ring->pending_first + ring->pending_count++) % PENDING_BULK;

		ring->pending[last].end = ring->submit.mine;
		ring->pending[last].mask = mask;
		ring->pending[last].bytes = header->bulk_length;
		ring->on_its_way += header->bulk_length;
	}
	vg_full_fence();
	if (vg_load32(&ring->control->parked))
		vg_ring_doorbell(ring);
	return 0;
}

static void ring_cancel(struct vg_conn *conn, struct vg_frame *frame)
{
	atomic_fetch_or(&conn->ring.blocks, frame->internal[2]);
}

static void ring_bulk_done(struct vg_conn *conn, const struct vg_frame *frame)
{
	atomic_fetch_or(&conn->ring.blocks, frame->internal[2]);
}

static const void *ring_reply_bulk(struct vg_conn *conn, struct slot *slot, const struct vg_frame *frame)
{
	(void)slot;
	return conn->ring.window + block_offset(&conn->ring, frame->internal[2]);
}

static void ring_destroy(struct vg_conn *conn)
{
	struct conn_ring *ring = &conn->ring;

	if (ring->eventfd >= 0)
		close(ring->eventfd);
	if (conn->foreign) /* the mappings did not come along (MADV_DONTFORK) */
		return;
	if (ring->memory)
		munmap(ring->memory, ring->memory_size);
	if (ring->guard)
		munmap((void *)ring->guard, VG_PAGE);
	if (ring->bar)
		munmap((void *)((uintptr_t)ring->bar & ~(uintptr_t)(VG_PAGE - 1)), VG_PAGE);
}

/* Most replies come within a microsecond or two: looks at one word for as long before anything else is looked at. */
static void poll_head(const struct conn_ring *ring)
{
	for (unsigned i = 1; i < POLLS && vg_load64(&ring->control->reply_head) == ring->reply.mine; i++)
		if (i % POLLS_PER_PAUSE == 0)
			vg_pause();
}

static void ring_drain_watched(struct vg_conn *conn)
{
	struct conn_ring *ring = &conn->ring;

	if (vg_load32(ring->guard))
		return;
	poll_head(ring);
	if (vg_load64(&ring->control->reply_head) != ring->reply.mine)
		ring->idle = 0;
	else if (++ring->idle % 256 == 0 && ring->idle > 2048)
		watch_heartbeat(conn);
	ring_drain(conn);
}

const struct conn_ops vg_ring_ops = {
	.reserve = ring_reserve,
	.send = ring_send,
	.cancel = ring_cancel,
	.drain = ring_drain_watched,
	.alive = vg_ring_alive,
	.bulk_done = ring_bulk_done,
	.reply_bulk = ring_reply_bulk,
	.destroy = ring_destroy,
};

/* ---- attaching ---- */

static int map_shared(int fd, size_t size, int protection, void **out)
{
	*out = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	if (*out == MAP_FAILED)
		return -errno;
	/* a child of fork must not speak on its parent's lane, not even by accident */
	madvise(*out, size, MADV_DONTFORK);
	return 0;
}

static int map_all(struct conn_ring *ring, const struct vg_agent_answer *answer, int fds[VG_AGENT_FDS])
{
	void *memory, *guard, *bar;
	int error = map_shared(fds[0], answer->memory_size, PROT_READ | PROT_WRITE, &memory);

	if (error)
		return error;
	ring->memory = memory;
	ring->memory_size = answer->memory_size;
	error = map_shared(fds[2], VG_PAGE, PROT_READ, &guard);
	if (error)
		return error;
	ring->guard = guard;
	if (answer->doorbell == VG_DOORBELL_EVENTFD) {
		ring->eventfd = fds[1];
		fds[1] = -1;
		return 0;
	}
	error = map_shared(fds[1], VG_PAGE, PROT_READ | PROT_WRITE, &bar);
	if (!error)
		ring->bar = (volatile uint32_t *)((uint8_t *)bar + VG_DOORBELL_OFFSET);
	return error;
}

static void place_rings(struct vg_conn *conn)
{
	struct conn_ring *ring = &conn->ring;
	uint8_t *base;

	ring->control = vg_lane_at(ring->memory, &ring->layout, conn->lane);
	base = (uint8_t *)ring->control + VG_PAGE;
	vg_ring_init(&ring->submit, base, ring->layout.submit_size, &ring->control->submit_head,
		     &ring->control->submit_tail);
	base += ring->layout.submit_size;
	vg_ring_init(&ring->reply, base, ring->layout.reply_size, &ring->control->reply_head,
		     &ring->control->reply_tail);
	ring->window = base + ring->layout.reply_size;
}

/* Whole blocks, as many as there are in a piece. */
static size_t piece_size(const struct vg_layout *layout)
{
	size_t piece = layout->block_size < PIECE ? PIECE / layout->block_size * layout->block_size : PIECE;

	return piece < layout->bulk_max ? piece : layout->bulk_max;
}

int vg_ring_attach(struct vg_conn *conn, const struct vg_agent_answer *answer, int fds[VG_AGENT_FDS])
{
	struct conn_ring *ring = &conn->ring;
	unsigned blocks;
	char text[160];
	int error;

	conn->ops = &vg_ring_ops;
	*ring = (struct conn_ring){ .eventfd = -1 };
	error = map_all(ring, answer, fds);
	if (error) {
		vg_conn_say("cannot map the channel's memory: errno %d", -error);
		return error;
	}
	ring->header = (struct vg_header *)ring->memory;
	error = vg_layout_read(ring->header, &ring->layout, text, sizeof(text));
	if (error || ring->layout.size > answer->memory_size || conn->lane > ring->layout.lane_count) {
		vg_conn_say("%s", error ? text : "the channel's memory is smaller than it says");
		return -EPROTO;
	}
	place_rings(conn);
	blocks = ring->layout.window_size / ring->layout.block_size;
	atomic_store(&ring->blocks, blocks >= 64 ? ~0ull : (1ull << blocks) - 1);
	conn->bulk_max = ring->layout.bulk_max;
	conn->piece = piece_size(&ring->layout);
	conn->relayed = answer->doorbell == VG_DOORBELL_EVENTFD;
	return 0;
}
