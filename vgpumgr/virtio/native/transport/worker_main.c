/* SPDX-License-Identifier: Apache-2.0 */
/* The server: doorbell, lane 0, the serial stream, the keeper, and sessions that come and go. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util.h"
#include "worker.h"
#include "worker_exports.h"
#include "worker_limits.h"
#include "worker_share.h"

enum {
	TICK_MS = 100,            /* heartbeat, serial retries, a doorbell that was lost */
	DRAIN_MS = 2000,          /* sessions get this long to end, at the end */
	DOORBELL_PAUSE_NS = 2000, /* a doorbell storm costs the guest more than us */
};

/* ---- what the keeper hears ---- */

static void note(int keeper, uint32_t what, const char *text)
{
	struct vg_note note = { .what = what };

	snprintf(note.text, sizeof(note.text), "%s", text);
	if (keeper >= 0)
		send(keeper, &note, sizeof(note), MSG_NOSIGNAL);
}

/* ---- what the keeper hands over ---- */

static int read_options(int argc, char **argv, struct vg_inherited *in)
{
	*in = (struct vg_inherited){ .memory = -1, .doorbell = -1, .stats = -1, .control = -1, .watch = -1, .limits = -1, .exports = -1,
				      .device = "", .warn_s = VG_WARN_S };
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], VG_OPTION_SERIAL, strlen(VG_OPTION_SERIAL)))
			in->serial = argv[i] + strlen(VG_OPTION_SERIAL);
		else if (!strncmp(argv[i], VG_OPTION_NUMBER, strlen(VG_OPTION_NUMBER)))
			sscanf(argv[i] + strlen(VG_OPTION_NUMBER), "%u", &in->number);
		else if (!strncmp(argv[i], VG_OPTION_DEVICE, strlen(VG_OPTION_DEVICE)))
			in->device = argv[i] + strlen(VG_OPTION_DEVICE);
		else if (!strncmp(argv[i], VG_OPTION_WATCHDOG, strlen(VG_OPTION_WATCHDOG)))
			sscanf(argv[i] + strlen(VG_OPTION_WATCHDOG), "%u:%u", &in->warn_s, &in->end_s);
		else if (!strncmp(argv[i], VG_OPTION_CHANNEL, strlen(VG_OPTION_CHANNEL)))
			sscanf(argv[i] + strlen(VG_OPTION_CHANNEL), "memory:%d,doorbell:%d,stats:%d,control:%d,epoch:%u",
			       &in->memory, &in->doorbell, &in->stats, &in->control, &in->epoch);
		else if (!strncmp(argv[i], VG_OPTION_SESSION, strlen(VG_OPTION_SESSION)))
			in->session = sscanf(argv[i] + strlen(VG_OPTION_SESSION),
					     "memory:%d,stats:%d,socket:%d,watch:%d,limits:%d,exports:%d", &in->memory, &in->stats,
					     &in->control, &in->watch, &in->limits, &in->exports) == 6;
	}
	return in->stats < 0 || in->control < 0 || !(in->epoch || in->session) ? -EINVAL : 0;
}

/* A session has the same arguments, and its own descriptors: see become_session() in worker_spawn.c. */
static char **session_arguments(int argc, char **argv, const struct vg_inherited *in)
{
	static char option[96];
	int page, bell;
	char **words = calloc((size_t)argc + 3, sizeof(*words));
	int count = 0;

	if (!words)
		return NULL;
	for (int i = 0; i < argc; i++)
		if (strncmp(argv[i], VG_OPTION_CHANNEL, strlen(VG_OPTION_CHANNEL)) &&
		    strncmp(argv[i], VG_OPTION_SERIAL, strlen(VG_OPTION_SERIAL)))
			words[count++] = argv[i];
	snprintf(option, sizeof(option), VG_OPTION_SESSION "memory:%d,stats:4,socket:5,watch:7,limits:8,exports:11",
		 in->memory < 0 ? -1 : 3);
	words[count++] = option;
	if (vg_share_fds(&page, &bell))
		words[count] = VG_OPTION_SESSION_SHARE "page:9,bell:10";
	return words;
}

static int map_memory(struct vg_server *server, int fd)
{
	struct stat st;
	void *memory;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) || vg_layout((uint64_t)st.st_size, &server->layout))
		return -EINVAL;
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	server->memory = memory;
	server->header = memory;
	return 0;
}

static void init_lane0(struct vg_server *server, struct vg_lane *lane, bool ring)
{
	lane->server = server;
	lane->ring = ring;
	lane->socket = -1;
	lane->words = &server->control_words[!ring];
}

static int init_server(struct vg_server *server, const struct vg_inherited *in)
{
	int error = map_memory(server, in->memory);
	void *stats = mmap(NULL, VG_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, in->stats, 0);

	if (error || stats == MAP_FAILED)
		return error ? error : -errno;
	server->stats = stats;
	memcpy(server->stats->hash, server->interface->hash, VG_HASH_SIZE);
	memcpy(server->stats->api_version, server->api_version, sizeof(server->api_version));
	server->doorbell = in->doorbell;
	server->keeper = in->control;
	server->epoch = in->epoch;
	server->number = in->number;
	snprintf(server->device, sizeof(server->device), "%s", in->device);
	server->serial_path = in->serial;
	server->serial = -1;
	server->memory_fd = in->memory;
	server->stats_fd = in->stats;
	server->limits_fd = vg_limits_make();
	if (server->limits_fd < 0)
		return server->limits_fd;
	server->spare = VG_NO_SESSION;
	server->spare_status = -1;
	server->warn_s = in->warn_s;
	server->end_s = in->end_s;
	init_lane0(server, &server->control_ring, true);
	init_lane0(server, &server->control_serial, false);
	return vg_watch_open(server);
}

/*
 * The guest may speak once `state` is ready. Written again and again: a process of the guest that spoils
 * the header or lane 0 must not cut off the others for good.
 */
static void publish(struct vg_server *server)
{
	vg_layout_publish(&server->layout, server->header);
	vg_store32(&server->header->epoch, server->epoch);
	vg_store32(&server->header->number, server->number);
	vg_control_poll(server);
	vg_control_publish(server);
	vg_store32(&server->header->state, VG_STATE_READY);
}

/* What has been polled: sessions by their lanes behind the spare. */
enum { POLL_KEEPER, POLL_DOORBELL, POLL_SERIAL, POLL_SPARE,
       POLL_EXPORTS = POLL_SPARE + VG_LANE_TABLE, POLL_COUNT = POLL_EXPORTS + VG_LANE_TABLE };

/* NULL: all of them. */
static void read_sessions(struct vg_server *server, const struct pollfd *wait)
{
	if (server->spare.socket >= 0 && (!wait || wait[POLL_SPARE].revents))
		vg_session_read(server, &server->spare, NULL);
	for (unsigned i = 1; i < VG_LANE_TABLE; i++) {
		struct vg_entry *entry = &server->entry[i];

		if (entry->state != LANE_FREE && entry->session.exports >= 0 && (!wait || wait[POLL_EXPORTS + i].revents))
			vg_exports_read(server, entry);
		if (entry->state == LANE_FREE || entry->session.socket < 0 || (wait && !wait[POLL_SPARE + i].revents))
			continue;
		if (entry->first && entry->state == LANE_OPEN)
			vg_entry_flush(entry);
		vg_session_read(server, &entry->session, entry);
	}
}

/* ---- the end ---- */

static struct vg_server *dying; /* for the signal handler: the only one in this process */

static void mark_lost(struct vg_server *server)
{
	if (!server->memory)
		return;
	vg_store32(&server->header->state, VG_STATE_LOST);
	for (uint32_t i = 0; i <= server->layout.lane_count; i++)
		vg_store64(&vg_lane_at(server->memory, &server->layout, i)->life, 0);
}

/* The keeper has died or wants us gone at once: only we can still mark the lanes as lost. */
static void on_term(int number)
{
	(void)number;
	mark_lost(dying);
	_exit(0);
}

static bool has_sessions(const struct vg_server *server)
{
	for (unsigned i = 1; i < VG_LANE_TABLE; i++)
		if (server->entry[i].state != LANE_FREE)
			return true;
	return false;
}

/* What remains then is stuck; it has been killed. */
static void end(struct vg_server *server)
{
	uint64_t until = vg_now_ms() + DRAIN_MS;
	struct timespec step = { .tv_nsec = 1000000 };

	server->spare_ms = UINT64_MAX;
	if (server->spare.pid) {
		kill(server->spare.pid, SIGKILL);
		server->spare.killed = true;
	}
	vg_entries_close(server, true);
	vg_entries_close(server, false);
	while ((has_sessions(server) || server->spare.pid) && vg_now_ms() < until) {
		nanosleep(&step, NULL);
		vg_sessions_tick(server);
		read_sessions(server, NULL);
		vg_sessions_reap(server);
	}
	mark_lost(server);
}

/* ---- the loop ---- */

static void ring_doorbells(struct vg_server *server)
{
	struct timespec pause = { .tv_nsec = DOORBELL_PAUSE_NS };
	uint64_t count;

	if (read(server->doorbell, &count, sizeof(count)) != sizeof(count))
		return;
	vg_store64(&server->stats->doorbells, vg_load64(&server->stats->doorbells) + count);
	for (uint32_t i = 1; i <= server->layout.lane_count; i++)
		if (server->entry[i].state == LANE_OPEN && vg_load32(&server->entry[i].words->asleep))
			vg_words_wake(server->entry[i].words);
	if (count > 64)
		nanosleep(&pause, NULL);
}

/* Now and then: it reads all of the table. */
static void publish_limits(struct vg_server *server)
{
	uint64_t now = vg_now_ms();

	if (now < server->limits_ms)
		return;
	server->limits_ms = now + TICK_MS / 2;
	vg_limits_publish(server->stats);
	vg_store64(&server->stats->opened_bytes, vg_exports_opened(server));
}

static void change_limit(struct vg_server *server, const char *text)
{
	unsigned number;
	uint64_t bytes;
	char answer[40];

	if (sscanf(text, "%u %" SCNu64, &number, &bytes) != 2)
		return;
	snprintf(answer, sizeof(answer), "%u %d", number, -vg_limits_change_memory(bytes));
	server->limits_ms = 0;
	publish_limits(server);
	note(server->keeper, VG_WORKER_LIMIT, answer);
}

static bool keeper_says_stop(struct vg_server *server)
{
	struct vg_note note = { 0 };
	int fd;

	if (vg_recv_fds(server->keeper, &note, sizeof(note), &fd, 1))
		return true;
	if (fd >= 0)
		vg_serial_adopt(server, fd);
	note.text[sizeof(note.text) - 1] = '\0';
	if (note.what == VG_KEEPER_LIMIT)
		change_limit(server, note.text);
	return note.what == VG_KEEPER_STOP;
}

static int next_tick(const struct vg_server *server)
{
	uint64_t now = vg_now_ms();

	if (server->spare.pid || server->spare_ms >= now + TICK_MS)
		return TICK_MS;
	return server->spare_ms > now ? (int)(server->spare_ms - now) : 0;
}

/* As ppoll() of all, which refuses more places than this process may have files open, even where they are empty. */
static void poll_open(struct pollfd *wait, const struct timespec *limit, const sigset_t *mask)
{
	struct pollfd live[POLL_COUNT];
	unsigned place[POLL_COUNT], count = 0;

	for (unsigned i = 0; i < POLL_COUNT; i++) {
		if (wait[i].fd < 0)
			continue;
		place[count] = i;
		live[count++] = wait[i];
	}
	if (ppoll(live, count, limit, mask) <= 0)
		return;
	for (unsigned i = 0; i < count; i++)
		wait[place[i]].revents = live[i].revents;
}

/* Waits until something is to be done. A child that ends interrupts, here only. */
static void wait_for_work(struct vg_server *server, struct pollfd *wait)
{
	struct timespec limit = { .tv_nsec = next_tick(server) * 1000000L };
	sigset_t none;

	sigemptyset(&none);
	wait[POLL_KEEPER] = (struct pollfd){ .fd = server->keeper, .events = POLLIN };
	wait[POLL_DOORBELL] = (struct pollfd){ .fd = server->memory ? server->doorbell : -1, .events = POLLIN };
	wait[POLL_SERIAL] = (struct pollfd){ .fd = server->serial, .events = POLLIN };
	if (server->out_filled)
		wait[POLL_SERIAL].events |= POLLOUT;
	wait[POLL_SPARE] = (struct pollfd){ .fd = server->spare.socket, .events = POLLIN };
	for (unsigned i = 1; i < VG_LANE_TABLE; i++) {
		const struct vg_entry *entry = &server->entry[i];
		struct pollfd *at = &wait[POLL_SPARE + i];

		wait[POLL_EXPORTS + i] = (struct pollfd){ .fd = entry->state == LANE_FREE ? -1 : entry->session.exports, .events = POLLIN };
		*at = (struct pollfd){ .fd = entry->state == LANE_FREE ? -1 : entry->session.socket };
		if (entry->ring || entry->state == LANE_CLOSING || !vg_stream_is_full(server))
			at->events |= POLLIN;
		if (entry->first && entry->state == LANE_OPEN)
			at->events |= POLLOUT;
	}
	poll_open(wait, &limit, &none);
}

static void serve(struct vg_server *server)
{
	static struct pollfd wait[POLL_COUNT];

	for (uint64_t beat = 1;; beat++) {
		wait_for_work(server, wait);
		if (wait[POLL_KEEPER].revents && keeper_says_stop(server))
			return;
		if (server->memory) {
			vg_store64(&server->header->heartbeat, beat);
			if (wait[POLL_DOORBELL].revents)
				ring_doorbells(server);
			publish(server);
		}
		read_sessions(server, wait);
		vg_sessions_reap(server);
		vg_sessions_tick(server);
		vg_watch_look(server);
		publish_limits(server);
		vg_spare_keep(server);
		if (server->serial_path)
			vg_serial_poll(server, wait[POLL_SERIAL].revents);
	}
}

/* ---- the beginning ---- */

/* Only with a driver that works is there anything to serve: the first session says so, or why not. */
static int wait_for_spare(struct vg_server *server)
{
	static struct pollfd wait[POLL_COUNT];
	int status;

	while (!server->spare.ready && server->spare_status < 0) {
		vg_spare_keep(server);
		wait_for_work(server, wait);
		if (wait[POLL_KEEPER].revents && keeper_says_stop(server))
			return -ECANCELED;
		read_sessions(server, wait);
		vg_sessions_reap(server);
	}
	status = server->spare_status;
	if (server->spare.ready || status < 0)
		return 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 1)
		note(server->keeper, VG_WORKER_FAILED, server->failure);
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

static void on_child(int number)
{
	(void)number;
}

static void set_signals(struct vg_server *server)
{
	struct sigaction term = { .sa_handler = on_term }, child = { .sa_handler = on_child };
	sigset_t blocked;

	dying = server;
	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGCHLD, &child, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
}

static int run_server(struct vg_server *server)
{
	int error = wait_for_spare(server);

	if (error) {
		end(server);
		return error == -ECANCELED ? 0 : error;
	}
	if (server->memory)
		publish(server);
	publish_limits(server);
	note(server->keeper, VG_WORKER_READY, server->api_version);
	serve(server);
	end(server);
	return 0;
}

int vg_worker_serve(int argc, char **argv, const struct vg_interface *interface, const char *api_version,
		    const struct vg_session_ops *ops)
{
	struct vg_server *server = calloc(1, sizeof(*server));
	struct vg_inherited in;
	int error = server ? read_options(argc, argv, &in) : -ENOMEM;

	if (!error && vg_limits_read(argc, argv)) {
		note(in.control, VG_WORKER_FAILED, "the worker does not understand its limits: " VG_OPTION_LIMITS);
		return 1;
	}
	if (error) {
		fprintf(stderr, "worker: started without a keeper: no %s option\n", VG_OPTION_CHANNEL);
		free(server);
		return 1;
	}
	if (vg_share_open(argc, argv)) {
		note(in.control, VG_WORKER_FAILED, "the page of the channel's share cannot be mapped");
		return 1;
	}
	if (in.session) /* what is left is the kernel's to free; handlers of a driver could wait for the device */
		_exit(vg_session_main(argc, argv, &in, interface, ops));
	server->ops = ops;
	server->interface = interface;
	snprintf(server->api_version, sizeof(server->api_version), "%s", api_version);
	server->argv = session_arguments(argc, argv, &in);
	if (!server->argv || init_server(server, &in)) {
		note(in.control, VG_WORKER_FAILED, "the channel's memory cannot be mapped");
		return 1;
	}
	set_signals(server);
	return run_server(server);
}
