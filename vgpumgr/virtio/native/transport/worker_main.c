/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's main thread: doorbell, lane 0, the serial stream, the keeper. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util.h"
#include "worker.h"

enum {
	TICK_MS = 100,            /* heartbeat, serial retries, a doorbell that was lost */
	DRAIN_MS = 2000,          /* lanes get this long to close their sessions at the end */
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

struct inherited {
	int memory, doorbell, stats, control;
	unsigned epoch, number;
	const char *serial, *device;
};

static int read_options(int argc, char **argv, struct inherited *in)
{
	*in = (struct inherited){ -1, -1, -1, -1, 0, 0, NULL, "" };
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], VG_OPTION_SERIAL, strlen(VG_OPTION_SERIAL)))
			in->serial = argv[i] + strlen(VG_OPTION_SERIAL);
		else if (!strncmp(argv[i], VG_OPTION_NUMBER, strlen(VG_OPTION_NUMBER)))
			sscanf(argv[i] + strlen(VG_OPTION_NUMBER), "%u", &in->number);
		else if (!strncmp(argv[i], VG_OPTION_DEVICE, strlen(VG_OPTION_DEVICE)))
			in->device = argv[i] + strlen(VG_OPTION_DEVICE);
		else if (!strncmp(argv[i], VG_OPTION_CHANNEL, strlen(VG_OPTION_CHANNEL)))
			sscanf(argv[i] + strlen(VG_OPTION_CHANNEL), "memory:%d,doorbell:%d,stats:%d,control:%d,epoch:%u",
			       &in->memory, &in->doorbell, &in->stats, &in->control, &in->epoch);
	}
	return in->stats < 0 || in->control < 0 || !in->epoch ? -EINVAL : 0;
}

int vg_worker_fail(int argc, char **argv, const char *message)
{
	struct inherited in;

	if (read_options(argc, argv, &in))
		return -EINVAL;
	note(in.control, VG_WORKER_FAILED, message);
	return 0;
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
	pthread_mutex_init(&lane->queue_lock, NULL);
	lane->server = server;
	lane->ring = ring;
	lane->last = &lane->first;
	atomic_store(&lane->state, LANE_OPEN);
}

static int init_server(struct vg_server *server, const struct inherited *in)
{
	int error = map_memory(server, in->memory);
	void *stats = mmap(NULL, VG_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, in->stats, 0);

	if (error || stats == MAP_FAILED)
		return error ? error : -errno;
	server->stats = stats;
	memcpy(server->stats->hash, server->hash, VG_HASH_SIZE);
	memcpy(server->stats->api_version, server->api_version, sizeof(server->api_version));
	server->doorbell = in->doorbell;
	server->keeper = in->control;
	server->epoch = in->epoch;
	server->number = in->number;
	snprintf(server->device, sizeof(server->device), "%s", in->device);
	server->serial_path = in->serial;
	server->serial = -1;
	pthread_mutex_init(&server->lock, NULL);
	pthread_mutex_init(&server->serial_lock, NULL);
	init_lane0(server, &server->control_ring, true);
	init_lane0(server, &server->control_serial, false);
	return 0;
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
	vg_store32(&server->control_ring.control->parked, 1);
	vg_store64(&server->control_ring.control->life, server->control_ring.generation);
	vg_store32(&server->header->state, VG_STATE_READY);
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

static void end(struct vg_server *server)
{
	uint64_t until = vg_now_ms() + DRAIN_MS;
	struct timespec step = { .tv_nsec = 1000000 };

	vg_lanes_close(server, true);
	vg_lanes_close(server, false);
	while (atomic_load(&server->running) && vg_now_ms() < until)
		nanosleep(&step, NULL);
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
		if (server->lane[i])
			vg_lane_wake(server->lane[i]);
	if (count > 64)
		nanosleep(&pause, NULL);
}

static bool keeper_says_stop(struct vg_server *server)
{
	struct vg_note note;
	ssize_t n = recv(server->keeper, &note, sizeof(note), MSG_DONTWAIT);

	if (n == 0)
		return true;
	return n == sizeof(note) && note.what == VG_KEEPER_STOP;
}

static void serve(struct vg_server *server)
{
	struct pollfd wait[3] = {
		{ .fd = server->keeper, .events = POLLIN },
		{ .fd = server->memory ? server->doorbell : -1, .events = POLLIN },
		{ .events = POLLIN },
	};

	for (uint64_t beat = 1;; beat++) {
		wait[2].fd = server->serial;
		poll(wait, 3, TICK_MS);
		if (wait[0].revents && keeper_says_stop(server))
			return;
		if (server->memory) {
			vg_store64(&server->header->heartbeat, beat);
			if (wait[1].revents)
				ring_doorbells(server);
			publish(server);
		}
		if (server->serial_path)
			vg_serial_poll(server, wait[2].fd >= 0 && wait[2].revents);
	}
}

int vg_worker_serve(int argc, char **argv, const uint8_t hash[VG_HASH_SIZE], const char *api_version,
		    const struct vg_session_ops *ops)
{
	struct sigaction action = { .sa_handler = on_term };
	struct vg_server *server = calloc(1, sizeof(*server));
	struct inherited in;
	int error = server ? read_options(argc, argv, &in) : -ENOMEM;

	if (error) {
		fprintf(stderr, "worker: started without a keeper: no %s option\n", VG_OPTION_CHANNEL);
		free(server);
		return error;
	}
	memcpy(server->hash, hash, VG_HASH_SIZE);
	snprintf(server->api_version, sizeof(server->api_version), "%s", api_version);
	server->ops = ops;
	error = init_server(server, &in);
	if (error) {
		note(in.control, VG_WORKER_FAILED, "the channel's memory cannot be mapped");
		return error;
	}
	dying = server;
	sigaction(SIGTERM, &action, NULL);
	if (server->memory)
		publish(server);
	note(in.control, VG_WORKER_READY, server->api_version);
	serve(server);
	end(server);
	return 0;
}
