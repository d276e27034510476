/* SPDX-License-Identifier: Apache-2.0 */
/* A session's process: starts, is given a lane, serves it, and ends with all that the guest process held. */
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "util.h"
#include "worker.h"
#include "worker_exports.h"
#include "worker_limits.h"
#include "worker_share.h"

/* Spinning finds the next frame of a busy process; yielding lets others run; then the thread sleeps. */
enum { SPINS = 300, YIELDS = 300, SLEEP_MS = 250 };

struct process {
	const struct vg_session_ops *ops;
	const struct vg_interface *interface;
	bool compared;           /* the guest process has said which operations it has */
	struct vg_peer peer;
	struct vg_lane lane;
	struct vg_stats *stats;
	struct vg_watch *watch;
	uint8_t *memory;         /* NULL: serial only */
	struct vg_layout layout;
	void *session;
	struct {
		struct vg_message head;
		uint8_t body[VG_MESSAGE_MAX];
	} message;               /* the last one of a serial lane */
};

/* ---- waiting ---- */

static bool something_waits(struct vg_lane *lane)
{
	return vg_lane_closing(lane) || vg_load64(&lane->control->submit_head) != lane->submit.mine;
}

/* Says "asleep" to both the guest and the server, then looks again: see "Publishing" in the wire format. */
static void park(struct vg_lane *lane)
{
	struct timespec limit = { .tv_nsec = SLEEP_MS * 1000000L };
	uint32_t seen = vg_load32(&lane->words->wake);

	vg_store32(&lane->words->asleep, 1);
	vg_store32(&lane->control->parked, 1);
	vg_full_fence();
	if (!something_waits(lane)) /* not a private futex: the server is another process */
		syscall(SYS_futex, &lane->words->wake, FUTEX_WAIT, seen, &limit, NULL, 0);
	vg_store32(&lane->words->asleep, 0);
	vg_store32(&lane->control->parked, 0);
}

static void wait_for_message(struct vg_lane *lane)
{
	struct pollfd wait = { .fd = lane->socket, .events = POLLIN };

	poll(&wait, 1, SLEEP_MS);
}

static void wait_for_frame(struct process *process)
{
	struct vg_lane *lane = &process->lane;

	/* tells the guest before waiting: it may be waiting for room */
	if (lane->ring && lane->released != lane->submit.mine) {
		lane->released = lane->submit.mine;
		vg_ring_release(&lane->submit);
	}
	for (unsigned round = 0; lane->ring && round < (process->ops->sleeps ? SPINS : SPINS + YIELDS); round++) {
		if (something_waits(lane))
			return;
		if (round < SPINS)
			vg_pause();
		else
			sched_yield();
	}
	if (process->ops->idle)
		process->ops->idle(process->session);
	if (lane->ring)
		park(lane);
	else
		wait_for_message(lane);
}

/* ---- serving ---- */

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

/* Tells the guest what has been consumed: now and then, and before there is a wait for more. */
static void give_credit(struct vg_lane *lane, uint32_t bytes, uint32_t step)
{
	lane->uncredited += bytes;
	if (lane->uncredited < step)
		return;
	bytes = lane->uncredited;
	lane->uncredited = 0;
	vg_serial_send(lane, VG_KIND_CREDIT, &bytes, sizeof(bytes), NULL, 0);
}

static int take_message(struct process *process, struct vg_call *call, const char **text)
{
	enum { STEP = 128 << 10 };
	struct vg_lane *lane = &process->lane;
	struct vg_message *head = &process->message.head;
	int got = 0;

	/* bulk alone is no call yet: look for the next at once */
	while (!got) {
		ssize_t n = recv(lane->socket, &process->message, sizeof(process->message), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			give_credit(lane, 0, STEP / 4);
			return 0;
		}
		if (n < (ssize_t)sizeof(*head)) { /* the lane ends */
			vg_lane_close(lane);
			return 0;
		}
		give_credit(lane, (uint32_t)n, STEP);
		got = vg_serial_take(lane, head, process->message.body, call, text);
	}
	return got;
}

static bool is_closing(const void *lane)
{
	return vg_lane_closing(lane);
}

/* Apart: what serves every call stays small. */
__attribute__((cold, noinline)) static void await_turn(const struct vg_lane *lane, const struct vg_call *call)
{
	vg_rate(call->payload_length + call->bulk_in_length + call->bulk_out_length, is_closing, lane);
}

/* Once: a guest process says it before all else, or not at all. */
__attribute__((cold, noinline)) static int take_interface(struct process *process, const struct vg_call *call)
{
	const struct vg_interface *interface = process->interface;
	char who[sizeof(process->peer.name) + 32];
	struct vg_interface later;

	if (process->compared)
		return -EPROTO;
	process->compared = true;
	if (process->ops->interface) {
		int error = process->ops->interface(process->session, &later);

		if (error) /* more than 0: the lane ends, and nothing is answered */
			return error < 0 ? error : 0;
		interface = &later;
	}
	snprintf(who, sizeof(who), "%s has guest libraries", process->peer.name);
	return vg_interface_answer(&process->lane, call, interface, process->ops->interface ? NULL : process->stats, who,
				   process->peer.api_version);
}

static int serve_call(struct process *process, const struct vg_call *call)
{
	if (__builtin_expect(call->op == VG_OP_INTERFACE, false))
		return take_interface(process, call);
	return process->ops->call(process->session, &process->lane, call);
}

static void serve_lane(struct process *process)
{
	struct vg_lane *lane = &process->lane;
	struct vg_call call;
	const char *text = "";

	while (!vg_lane_closing(lane)) {
		int got = lane->ring ? vg_ring_take(lane, &call, &text) : take_message(process, &call, &text);

		if (!got) {
			wait_for_frame(process);
			continue;
		}
		if (got > 0) {
			text = "refused by the decoder";
			if (__builtin_expect(vg_rated, false))
				await_turn(lane, &call);
			vg_watch_begin(lane, call.op);
			got = serve_call(process, &call);
			vg_watch_end();
			release_frame(lane, &call);
		}
		if (got < 0) {
			vg_violation(lane, text);
			vg_lane_close(lane);
		}
	}
}

/* ---- the process ---- */

static int map(struct process *process, const struct vg_inherited *in)
{
	struct stat status;
	void *stats = mmap(NULL, VG_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, in->stats, 0);
	void *memory;

	if (stats == MAP_FAILED)
		return -errno;
	process->stats = stats;
	close(in->stats);
	process->watch = mmap(NULL, sizeof(*process->watch), PROT_READ | PROT_WRITE, MAP_SHARED, in->watch, 0);
	if (process->watch == MAP_FAILED)
		return -errno;
	close(in->watch);
	if (vg_limits_map(in->limits))
		return -EINVAL;
	close(in->limits);
	if (in->memory < 0)
		return 0;
	if (fstat(in->memory, &status) || vg_layout((uint64_t)status.st_size, &process->layout))
		return -EINVAL;
	memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, in->memory, 0);
	if (memory == MAP_FAILED)
		return -errno;
	process->memory = memory;
	close(in->memory);
	return 0;
}

/* Waits for the lane; negative: none comes. */
static int take_lane(struct process *process)
{
	struct {
		struct vg_message head;
		struct vg_serve serve;
	} message;
	struct vg_lane *lane = &process->lane;
	ssize_t n;

	do
		n = recv(lane->socket, &message, sizeof(message), 0);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(message) || message.head.kind != VG_SESSION_SERVE)
		return -ECONNRESET;
	process->peer = message.serve.peer;
	lane->number = process->peer.lane;
	lane->ring = process->peer.ring;
	lane->generation = message.serve.generation;
	lane->words = &process->stats->words[lane->number];
	lane->stats = &process->stats->lane[lane->number];
	lane->health = &process->stats->health;
	lane->watched = process->watch->thread[lane->number];
	vg_limits_use(lane->number);
	vg_share_use(lane->number);
	if (lane->ring)
		vg_lane_map(lane, process->memory, &process->layout);
	return 0;
}

static void serve(struct process *process)
{
	struct vg_lane *lane = &process->lane;
	struct vg_session_opened opened = { 0 };

	if (take_lane(process))
		return;
	opened.error = process->ops->open(lane, &process->peer, &process->session);
	if (opened.error > 0)
		opened.error = -EIO;
	memcpy(opened.text, lane->refusal, sizeof(opened.text));
	vg_session_tell(lane->socket, VG_SESSION_OPENED, &opened, sizeof(opened));
	if (opened.error)
		return;
	serve_lane(process);
	vg_rate_end();
	process->ops->close(process->session);
}

/* What was taken for the guest's process is free by now. The process ends by _exit(), which would look at nothing. */
#ifdef __SANITIZE_ADDRESS__
void __lsan_do_leak_check(void);
#else
static inline void __lsan_do_leak_check(void)
{
}
#endif

int vg_session_main(int argc, char **argv, const struct vg_inherited *in, const struct vg_interface *interface,
		    const struct vg_session_ops *ops)
{
	struct process *process = calloc(1, sizeof(*process));
	char message[4096] = "the channel's memory cannot be mapped";
	int error = process ? map(process, in) : -ENOMEM;

	prctl(PR_SET_NAME, "vgpumgr-session");
	fcntl(in->control, F_SETFD, FD_CLOEXEC);
	fcntl(in->exports, F_SETFD, FD_CLOEXEC);
	vg_exports_use(in->exports);
	if (!error) {
		message[0] = '\0';
		error = ops->start ? ops->start(argc, argv, message, sizeof(message)) : 0;
	}
	if (error) {
		vg_session_tell(in->control, VG_SESSION_FAILED, message, strlen(message) + 1);
		return 1;
	}
	process->ops = ops;
	process->interface = interface;
	process->lane.socket = in->control;
	vg_session_tell(in->control, VG_SESSION_READY, message, strlen(message));
	serve(process);
	fflush(NULL);
	__lsan_do_leak_check();
	return 0;
}
