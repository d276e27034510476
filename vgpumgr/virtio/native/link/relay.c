/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-relay: serves a channel as a worker does, and has another host execute the calls. */
#include "relay_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "../transport/util.h"
#include "../worker/filter.h"

enum {
	GRACE_S = 30, GRACE_MAX_S = 3600,
	OPEN_MS = 15000,         /* then the process has its lane, and waits in its first call: see open_session() */
	FULL = 64 << 10,         /* posted frames that wait for more of them */
	STEP_MS = 100,
};

#define OPTION_LINK "--link="
#define OPTION_GRACE "--grace="

static const char *directory;
static unsigned grace_s = GRACE_S;

/* ---- the lane's thread ---- */

/* Under the lock, which it gives up meanwhile. False: there is nothing more to wait for. */
static bool wait_for_change(struct relay *relay)
{
	uint64_t paused = vg_watch_pause();
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += STEP_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_cond_timedwait(&relay->changed, &relay->lock, &until);
	vg_watch_resume(paused);
	return relay->state != RELAY_ENDED && !vg_lane_closing(relay->lane);
}

static void flush(struct relay *relay)
{
	int error = vg_durable_send(&relay->stream, vg_now_ms());

	relay->unsent = 0;
	if (!error)
		return;
	relay->blocked |= error == -EAGAIN;
	relay->broken |= error != -EAGAIN;
	relay_wake(relay);
}

/* Waits while the other side does not take it. */
static bool put(struct relay *relay, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length) {
		size_t n = vg_durable_write(&relay->stream, at, length);

		at += n;
		length -= n;
		relay->unsent += n;
		if (relay->unsent >= FULL)
			flush(relay);
		if (!n && !wait_for_change(relay))
			return false;
	}
	return true;
}

static bool await_welcome(struct relay *relay)
{
	while (relay->state == RELAY_OPENING)
		if (!wait_for_change(relay))
			return false;
	return relay->state == RELAY_OPEN;
}

static int forward(struct relay *relay, const struct vg_call *call)
{
	struct vg_link_message message = {
		.kind = VG_LINK_FRAME,
		.length = (uint32_t)call->payload_length,
		.op = call->op,
		.sequence = call->sequence,
		.flags = (call->wants_reply ? VG_LINK_WANTS_REPLY : 0) | (call->bulk_in_length ? VG_LINK_BULK_IN : 0) |
			 (call->bulk_out_length ? VG_LINK_BULK_OUT : 0),
		.bulk = (uint32_t)call->bulk_in_length,
		.wish = (uint32_t)call->bulk_out_length,
	};
	struct relay_call *entry = &relay->call[call->sequence % VG_LINK_CALLS];

	if (!await_welcome(relay))
		return 0; /* the lane ends */
	if (call->wants_reply)
		*entry = (struct relay_call){ .busy = true, .sequence = call->sequence, .bulk = call->bulk_out,
					      .bulk_length = (uint32_t)call->bulk_out_length };
	relay->half = !put(relay, &message, sizeof(message)) || !put(relay, call->payload, call->payload_length) ||
		      !put(relay, call->bulk_in, call->bulk_in_length);
	if (call->wants_reply && !relay->half)
		flush(relay);
	return 0;
}

static int call_relay(void *session, struct vg_lane *lane, const struct vg_call *call)
{
	struct relay *relay = session;
	int error;

	if (call->bulk_in_length > vg_lane_bulk_max(lane) || call->bulk_out_length > vg_lane_bulk_max(lane))
		return -EPROTO;
	pthread_mutex_lock(&relay->lock);
	error = forward(relay, call);
	pthread_mutex_unlock(&relay->lock);
	return error;
}

static void flush_idle(void *session)
{
	struct relay *relay = session;

	if (!relay->unsent) /* this thread's alone to change from 0 */
		return;
	pthread_mutex_lock(&relay->lock);
	flush(relay);
	pthread_mutex_unlock(&relay->lock);
}

/* 1: the lane ends, and nothing is answered. */
static int ask_interface(void *session, struct vg_interface *interface)
{
	struct relay *relay = session;
	bool open;

	pthread_mutex_lock(&relay->lock);
	open = await_welcome(relay);
	*interface = (struct vg_interface){ .words = relay->words, .count = relay->count };
	pthread_mutex_unlock(&relay->lock);
	return open ? 0 : 1;
}

/* ---- a lane's beginning and end ---- */

static int prepare(struct relay *relay)
{
	pthread_condattr_t clock;
	int error = vg_durable_init(&relay->stream);

	if (error || getrandom(relay->id, sizeof(relay->id), 0) != sizeof(relay->id))
		return error ? error : -EIO;
	relay->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&relay->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&relay->changed, &clock);
	return relay->wake < 0 ? -errno : 0;
}

static void say_hello(struct relay *relay)
{
	struct vg_link_message message = { .kind = VG_LINK_HELLO, .length = sizeof(struct vg_link_hello) };
	struct vg_link_hello hello = { .version = VG_LINK_VERSION, .pid = relay->peer.pid,
				       .bulk_max = (uint32_t)vg_lane_bulk_max(relay->lane) };

	memcpy(hello.name, relay->peer.name, sizeof(hello.name));
	memcpy(hello.api_version, relay->peer.api_version, sizeof(hello.api_version));
	vg_durable_write(&relay->stream, &message, sizeof(message));
	vg_durable_write(&relay->stream, &hello, sizeof(hello));
}

/* What the other host says at once is the process's to hear. Where it takes longer the lane opens: the guest's agent and
 * libraries wait for a lane for half a minute, and for a call as long as it takes. */
static int await_opening(struct relay *relay)
{
	uint64_t until = vg_now_ms() + OPEN_MS;
	int error = 0;

	pthread_mutex_lock(&relay->lock);
	while (relay->state == RELAY_OPENING && vg_now_ms() < until && wait_for_change(relay))
		continue;
	if (relay->state == RELAY_ENDED) {
		vg_lane_refuse(relay->lane, relay->text);
		error = -EACCES;
	}
	pthread_mutex_unlock(&relay->lock);
	return error;
}

static void stop(struct relay *relay)
{
	pthread_mutex_lock(&relay->lock);
	relay->stopping = true;
	pthread_mutex_unlock(&relay->lock);
	relay_wake(relay);
	pthread_join(relay->thread, NULL);
}

static void release(struct relay *relay)
{
	vg_durable_free(&relay->stream);
	vg_close_fd(&relay->wake);
	free(relay);
	OPENSSL_thread_stop(); /* of this thread, which has written to the link, too */
}

static int open_session(struct vg_lane *lane, const struct vg_peer *peer, void **session)
{
	struct relay *relay = calloc(1, sizeof(*relay));
	int error;

	if (!relay)
		return -ENOMEM;
	*relay = (struct relay){ .directory = directory, .grace_ms = grace_s * 1000, .lane = lane, .peer = *peer,
				 .wake = -1, .dialer = -1, .tcp = -1, .came = -1 };
	relay->reader = (struct vg_reader){ .ops = &relay_reader_ops, .context = relay, .relay = true,
					    .bulk_max = (uint32_t)vg_lane_bulk_max(lane) };
	error = prepare(relay);
	if (!error) {
		say_hello(relay);
		error = -pthread_create(&relay->thread, NULL, relay_run, relay);
	}
	if (!error) {
		*session = relay;
		error = await_opening(relay);
		if (!error)
			return 0;
		stop(relay);
	}
	release(relay);
	return error;
}

static void close_session(void *session)
{
	struct vg_link_message message = { .kind = VG_LINK_END };
	struct relay *relay = session;

	pthread_mutex_lock(&relay->lock);
	/* the end of the connection says as much */
	if (relay->state != RELAY_ENDED && !relay->half &&
	    relay->stream.written - relay->stream.acknowledged <= VG_LINK_WINDOW - sizeof(message)) {
		vg_durable_write(&relay->stream, &message, sizeof(message));
		flush(relay);
	}
	pthread_mutex_unlock(&relay->lock);
	stop(relay);
	release(relay);
}

/* ---- the program ---- */

static int read_options(int argc, char **argv, char *message, size_t size)
{
	struct stat status;
	char path[512];

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], OPTION_LINK, strlen(OPTION_LINK)))
			directory = argv[i] + strlen(OPTION_LINK);
		else if (!strncmp(argv[i], OPTION_GRACE, strlen(OPTION_GRACE)) &&
			 (sscanf(argv[i] + strlen(OPTION_GRACE), "%u", &grace_s) != 1 || !grace_s || grace_s > GRACE_MAX_S)) {
			snprintf(message, size, "the relay cannot understand %s: 1 to %d seconds", argv[i], GRACE_MAX_S);
			return -EINVAL;
		}
	}
	if (!directory) {
		snprintf(message, size, "the relay needs " OPTION_LINK "DIR");
		return -EINVAL;
	}
	snprintf(path, sizeof(path), "%s/key.pem", directory);
	if (!stat(path, &status))
		return 0;
	snprintf(message, size, "the relay cannot find %s: %s", path, strerror(errno));
	return -ENOENT;
}

static int start(int argc, char **argv, char *message, size_t size)
{
	int error = read_options(argc, argv, message, size);

	if (error)
		return error;
	signal(SIGPIPE, SIG_IGN);
	OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	error = vg_lock_down_as(VG_FILTER_RELAY, argc, argv);
	if (error)
		snprintf(message, size, "sandbox: cannot lock down: %s", strerror(-error));
	return error;
}

int main(int argc, char **argv)
{
	/* the operations are the other host's: each process asks */
	static const struct vg_interface interface;
	static const struct vg_session_ops ops = {
		.start = start,
		.open = open_session,
		.refuses = true,
		.sleeps = true,
		.call = call_relay,
		.close = close_session,
		.idle = flush_idle,
		.interface = ask_interface,
	};

	if (vg_hide(argc, argv))
		return 1;
	return vg_worker_serve(argc, argv, &interface, VGPUMGR_VERSION, &ops);
}
