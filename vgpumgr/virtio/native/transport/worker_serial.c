/* SPDX-License-Identifier: Apache-2.0 */
/* The serial stream: connect and connect again, find the sync, sort messages by lane. */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "util.h"
#include "worker.h"

enum {
	RETRY_MS = 200,
	BUFFER = 64 << 10,
};

void vg_serial_hang_up(struct vg_server *server)
{
	vg_entries_close(server, false);
	vg_pending_drop(&server->control_serial);
	vg_close_fd(&server->serial);
	server->synced = false;
	server->serial_filled = 0;
	server->out_filled = 0;
	server->serial_broken = false;
	server->greeted[1] = false;
	server->hellos[1]++;
	server->serial_retry_ms = vg_now_ms() + RETRY_MS;
	vg_store32(&server->stats->serial_connected, 0);
	vg_store32(&server->stats->guest[1].present, 0);
}

/* `bytes` are the message and its body. */
static int take_message(struct vg_server *server, const struct vg_message *message, const uint8_t *bytes)
{
	struct vg_lane *control = &server->control_serial;
	struct vg_call call;
	const char *text;

	if (message->kind != VG_KIND_FRAME && message->kind != VG_KIND_BULK)
		return -EPROTO;
	if (message->lane >= VG_SERIAL_LANE_FIRST && message->lane < VG_LANE_TABLE)
		return vg_entry_deliver(server, &server->entry[message->lane], bytes, sizeof(*message) + message->length);
	if (message->lane || message->kind != VG_KIND_FRAME)
		return -EPROTO;
	if (vg_serial_take(control, message, bytes + sizeof(*message), &call, &text) < 0)
		return -EPROTO;
	return vg_control_frame(control, &call);
}

static void start_session(struct vg_server *server, const uint8_t *sync)
{
	vg_entries_close(server, false);
	vg_pending_drop(&server->control_serial);
	server->greeted[1] = false;
	server->hellos[1]++;
	server->synced = !vg_stream_write(server, sync, VG_SYNC_SIZE);
}

static bool is_sync(const uint8_t *bytes)
{
	return !memcmp(bytes, VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE);
}

/* Bytes used from the front; 0: more are needed; negative: garbage. */
static ssize_t take_one(struct vg_server *server, const uint8_t *bytes, size_t length)
{
	struct vg_message message;
	int error;

	if (length >= VG_SYNC_SIZE && is_sync(bytes)) {
		start_session(server, bytes);
		return VG_SYNC_SIZE;
	}
	if (!server->synced) /* leftovers: a byte at a time until a sync */
		return length >= VG_SYNC_SIZE;
	if (length < sizeof(message))
		return 0;
	memcpy(&message, bytes, sizeof(message));
	if (!memcmp(bytes, VG_SYNC_TEXT, sizeof(message))) /* a sync of which the rest is on its way */
		return 0;
	if (message.magic != VG_MESSAGE_MAGIC || message.length > VG_MESSAGE_MAX)
		return -EPROTO;
	if (length < sizeof(message) + message.length)
		return 0;
	error = take_message(server, &message, bytes);
	return error ? error : (ssize_t)(sizeof(message) + message.length);
}

static int take_all(struct vg_server *server)
{
	size_t at = 0;
	ssize_t used;

	do {
		used = take_one(server, server->serial_in + at, server->serial_filled - at);
		if (used < 0)
			return (int)used;
		at += (size_t)used;
	} while (used);
	memmove(server->serial_in, server->serial_in + at, server->serial_filled - at);
	server->serial_filled -= at;
	return 0;
}

static void read_stream(struct vg_server *server)
{
	ssize_t n = recv(server->serial, server->serial_in + server->serial_filled, BUFFER - server->serial_filled,
			 MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		vg_serial_hang_up(server);
		return;
	}
	server->serial_filled += (size_t)n;
	if (take_all(server) < 0) {
		vg_report_violation(server, 0, false, "garbage on the serial stream");
		vg_serial_hang_up(server);
	}
}

void vg_serial_adopt(struct vg_server *server, int fd)
{
	if (server->serial >= 0 || !server->serial_in) {
		close(fd);
		return;
	}
	server->serial = fd;
	server->out_ms = vg_now_ms();
	vg_store32(&server->stats->serial_connected, 1);
}

static void connect_stream(struct vg_server *server)
{
	struct vg_note ask = { .what = VG_WORKER_SERIAL };
	int fd;

	if (vg_now_ms() < server->serial_retry_ms)
		return;
	server->serial_retry_ms = vg_now_ms() + RETRY_MS;
	if (!server->serial_in)
		server->serial_in = malloc(BUFFER);
	if (!server->serial_in)
		return;
	if (!strcmp(server->serial_path, VG_SERIAL_OF_KEEPER)) {
		send(server->keeper, &ask, sizeof(ask), MSG_NOSIGNAL | MSG_DONTWAIT);
		return;
	}
	fd = vg_connect(server->serial_path);
	if (fd >= 0)
		vg_serial_adopt(server, fd);
}

void vg_serial_poll(struct vg_server *server, short ready)
{
	if (server->serial < 0)
		return connect_stream(server);
	if (ready & ~POLLOUT)
		read_stream(server);
	vg_stream_flush(server);
	if (server->serial_broken)
		vg_serial_hang_up(server);
}
