/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a lane: opened for a guest process, served by a thread of its own, freed with all that it held. */
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "util.h"
#include "worker.h"

/* Spinning finds the next frame of a busy process; yielding lets others run; then the thread sleeps. */
enum { SPINS = 300, YIELDS = 300, SLEEP_MS = 250 };

static void sleep_on(struct vg_lane *lane, uint32_t seen)
{
	struct timespec limit = { .tv_nsec = SLEEP_MS * 1000000L };

	syscall(SYS_futex, &lane->wake, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

static bool something_waits(struct vg_lane *lane)
{
	bool queued;

	if (vg_lane_closing(lane))
		return true;
	if (lane->ring)
		return vg_load64(&lane->control->submit_head) != lane->submit.mine;
	pthread_mutex_lock(&lane->queue_lock);
	queued = lane->first;
	pthread_mutex_unlock(&lane->queue_lock);
	return queued;
}

/* Says "asleep" to both the guest and our main thread, then looks again: see "Publishing" in the wire format. */
static void park(struct vg_lane *lane)
{
	uint32_t seen = vg_load32(&lane->wake);

	atomic_store(&lane->asleep, true);
	if (lane->ring)
		vg_store32(&lane->control->parked, 1);
	vg_full_fence();
	if (!something_waits(lane))
		sleep_on(lane, seen);
	atomic_store(&lane->asleep, false);
	if (lane->ring)
		vg_store32(&lane->control->parked, 0);
}

static void wait_for_frame(struct vg_lane *lane)
{
	/* tells the guest before waiting: it may be waiting for room */
	if (lane->ring && lane->released != lane->submit.mine) {
		lane->released = lane->submit.mine;
		vg_ring_release(&lane->submit);
	}
	for (unsigned round = 0; round < SPINS + YIELDS; round++) {
		if (something_waits(lane))
			return;
		if (round < SPINS && lane->ring)
			vg_pause();
		else
			sched_yield();
	}
	if (lane->server->ops->idle)
		lane->server->ops->idle(lane->session);
	park(lane);
}

/* The guest gets bulk back at once, plain frames in lumps: each store to submit_tail costs both sides a cache miss. */
static void release_frame(struct vg_lane *lane, const struct vg_call *call)
{
	if (!lane->ring) {
		free(lane->bulk);
		lane->bulk = NULL;
		lane->bulk_filled = 0;
		return;
	}
	if (call->bulk_in || lane->submit.mine - lane->released >= lane->submit.size / 8) {
		lane->released = lane->submit.mine;
		vg_ring_release(&lane->submit);
	}
}

static void serve_lane(struct vg_lane *lane)
{
	const struct vg_session_ops *ops = lane->server->ops;
	struct vg_call call;
	const char *text = "";

	while (!vg_lane_closing(lane)) {
		int got = lane->ring ? vg_ring_take(lane, &call, &text) : vg_serial_take(lane, &call, &text);

		if (!got) {
			wait_for_frame(lane);
			continue;
		}
		if (got > 0) {
			text = "refused by the decoder";
			got = ops->call(lane->session, lane, &call);
			release_frame(lane, &call);
		}
		if (got < 0) {
			vg_violation(lane->server, lane->number, lane->ring, text);
			vg_lane_close(lane);
		}
	}
}

/* ---- opening and ending ---- */

static void answer_open(struct vg_lane *lane, int error)
{
	struct vg_server *server = lane->server;
	struct vg_lane *control = lane->ring ? &server->control_ring : &server->control_serial;
	struct vg_opened opened = { .lane = lane->number, .generation = lane->generation };
	static const char text[] = "the worker has refused this process";

	if (error)
		vg_answer(control, lane->open_sequence, error, text, sizeof(text), 0);
	else
		vg_answer(control, lane->open_sequence, 0, &opened, sizeof(opened), 0);
}

static void add_total(vg_word64 *total, const vg_word64 *part)
{
	vg_store64(total, vg_load64(total) + vg_load64(part));
}

static void drop_queue(struct vg_lane *lane)
{
	pthread_mutex_lock(&lane->queue_lock);
	for (struct parcel *parcel = lane->first, *next; parcel; parcel = next) {
		next = parcel->next;
		free(parcel);
	}
	lane->first = NULL;
	lane->last = &lane->first;
	lane->queued = 0;
	pthread_mutex_unlock(&lane->queue_lock);
	free(lane->bulk);
	lane->bulk = NULL;
}

/* The thread's last act: from here on the entry may be taken again. */
static void finish(struct vg_lane *lane)
{
	struct vg_server *server = lane->server;

	if (!lane->ring)
		vg_serial_send(server, lane->number, VG_KIND_LOST, NULL, 0, NULL, 0);
	vg_pending_drop(lane);
	pthread_mutex_lock(&server->lock);
	add_total(&server->stats->calls, &lane->stats->calls);
	add_total(&server->stats->posts, &lane->stats->posts);
	add_total(&server->stats->bytes_in, &lane->stats->bytes_in);
	add_total(&server->stats->bytes_out, &lane->stats->bytes_out);
	vg_store32(&lane->stats->used, 0);
	drop_queue(lane);
	atomic_store(&lane->state, LANE_FREE);
	atomic_fetch_sub(&server->running, 1);
	pthread_mutex_unlock(&server->lock);
}

static void *lane_main(void *argument)
{
	struct vg_lane *lane = argument;
	const struct vg_session_ops *ops = lane->server->ops;
	int error = ops->open(lane, &lane->peer, &lane->session);

	if (error > 0)
		error = -EIO;
	if (error)
		vg_lane_close(lane);
	answer_open(lane, error);
	if (!error) {
		serve_lane(lane);
		ops->close(lane->session);
	}
	finish(lane);
	return NULL;
}

void vg_lane_setup_ring(struct vg_lane *lane, uint32_t submit_size, uint32_t reply_size)
{
	struct vg_control *control = vg_lane_at(lane->server->memory, &lane->server->layout, lane->number);
	uint8_t *base = (uint8_t *)control + VG_PAGE;

	lane->control = control;
	vg_store64(&control->submit_head, 0);
	vg_store64(&control->submit_tail, 0);
	vg_store64(&control->reply_head, 0);
	vg_store64(&control->reply_tail, 0);
	vg_store32(&control->parked, 0);
	vg_ring_init(&lane->submit, base, submit_size, &control->submit_head, &control->submit_tail);
	vg_ring_init(&lane->reply, base + submit_size, reply_size, &control->reply_head, &control->reply_tail);
	lane->window = base + submit_size + reply_size;
	lane->window_size = lane->number ? lane->server->layout.window_size : 0;
	lane->released = 0;
}

/* Entries are used in turn: the longer a lane rests, the less a late store of its last owner matters. */
static struct vg_lane *take_entry(struct vg_server *server, bool ring)
{
	uint32_t first = ring ? 1 : VG_SERIAL_LANE_FIRST;
	uint32_t count = ring ? server->layout.lane_count : VG_SERIAL_LANES;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = first + (server->next_lane[!ring] + i) % count;
		struct vg_lane *lane = server->lane[number];

		if (!lane) {
			lane = calloc(1, sizeof(*lane));
			if (!lane)
				return NULL;
			pthread_mutex_init(&lane->queue_lock, NULL);
			server->lane[number] = lane;
		} else if (atomic_load(&lane->state) != LANE_FREE) {
			continue;
		}
		server->next_lane[!ring] = (number - first + 1) % count;
		lane->server = server;
		lane->number = number;
		lane->ring = ring;
		return lane;
	}
	return NULL;
}

static void describe(struct vg_lane *lane, const struct vg_open *open)
{
	struct vg_lane_stats *stats = &lane->server->stats->lane[lane->number];

	lane->peer = (struct vg_peer){ .lane = lane->number, .pid = open->pid, .ring = lane->ring };
	vg_clean_text(lane->peer.name, sizeof(lane->peer.name), open->name, sizeof(open->name));
	memset(stats, 0, sizeof(*stats));
	memcpy(stats->name, lane->peer.name, sizeof(stats->name));
	vg_store32(&stats->pid, open->pid);
	vg_store32(&stats->ring, lane->ring);
	vg_store64(&stats->since_s, (uint64_t)time(NULL));
	vg_store32(&stats->used, 1);
	lane->stats = stats;
}

int vg_lane_start(struct vg_server *server, bool ring, const struct vg_open *open, uint32_t sequence)
{
	struct vg_lane *lane;
	pthread_t thread;
	int error;

	pthread_mutex_lock(&server->lock);
	lane = take_entry(server, ring);
	pthread_mutex_unlock(&server->lock);
	if (!lane)
		return -EUSERS;
	lane->open_sequence = sequence;
	lane->generation = (uint64_t)server->epoch << 32 | ++server->counter;
	lane->session = NULL;
	lane->uncredited = 0;
	drop_queue(lane);
	lane->bulk_filled = 0;
	describe(lane, open);
	if (ring) {
		vg_lane_setup_ring(lane, server->layout.submit_size, server->layout.reply_size);
		vg_store64(&lane->control->life, lane->generation);
	}
	atomic_store(&lane->state, LANE_OPEN);
	atomic_fetch_add(&server->running, 1);
	vg_store64(&server->stats->lanes_opened, vg_load64(&server->stats->lanes_opened) + 1);
	error = pthread_create(&thread, NULL, lane_main, lane);
	if (error) {
		vg_lane_close(lane);
		finish(lane);
		return -error;
	}
	pthread_detach(thread);
	return 0;
}
