/* SPDX-License-Identifier: Apache-2.0 */
/* The virtio-serial port: one stream for all lanes, found anew after each loss by a sync with a fresh nonce. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "agent.h"

enum { LOOK_MS = 200, SYNC_MS = 1000, READ = 32768 };

/* A control frame is a message of lane 0. */
static int send_frame(struct link *link, const struct vg_frame_header *header, const void *payload)
{
	return agent_serial_send((struct agent_serial *)link, 0, VG_KIND_FRAME, header, sizeof(*header), payload,
				 header->length - VG_ALIGN);
}

void agent_serial_init(struct agent *agent, unsigned index)
{
	struct agent_serial *serial = &agent->serial[index];

	serial->link.agent = agent;
	serial->link.send = send_frame;
	serial->path = agent->serial_listen[index];
	serial->fd = serial->listen = -1;
}

static void lose_stream(struct agent_serial *serial)
{
	serial->synced = serial->connected = false;
	serial->in.filled = serial->out.filled = 0;
	agent_link_down(&serial->link);
	if (serial->path)
		vg_close_fd(&serial->fd);
}

static void lose_port(struct agent_serial *serial)
{
	lose_stream(serial);
	serial->link.present = false;
	vg_close_fd(&serial->fd);
}

/* ---- outgoing ---- */

static void flush(struct agent_serial *serial)
{
	ssize_t n;

	if (!serial->out.filled || serial->fd < 0)
		return;
	n = write(serial->fd, serial->out.bytes, serial->out.filled);
	if (n > 0)
		buffer_take(&serial->out, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		lose_port(serial);
}

static void send_sync(struct agent_serial *serial)
{
	uint8_t sync[VG_SYNC_SIZE];

	if (getrandom(&serial->nonce, sizeof(serial->nonce), 0) != sizeof(serial->nonce))
		serial->nonce = vg_now_ms();
	memcpy(sync, VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE);
	memcpy(sync + VG_SYNC_TEXT_SIZE, &serial->nonce, sizeof(serial->nonce));
	serial->out.filled = 0;
	serial->link.refusal[0] = '\0'; /* another worker may be there: processes wait for what it says */
	buffer_add(&serial->out, sync, sizeof(sync));
	serial->sync_ms = vg_now_ms() + SYNC_MS;
}

/* ---- incoming ---- */

static int take_message(struct agent_serial *serial, const struct vg_message *message, const uint8_t *body)
{
	struct vg_reply_header header;

	if (message->lane) {
		agent_client_message(&serial->link, message, body);
		return 0;
	}
	if (message->kind != VG_KIND_REPLY || message->length < sizeof(header))
		return -EPROTO;
	memcpy(&header, body, sizeof(header));
	if (header.length != message->length)
		return -EPROTO;
	agent_take_reply(&serial->link, &header, body + sizeof(header));
	return 0;
}

/* Bytes used; 0: more are needed; negative: garbage. */
static ssize_t take_one(struct agent_serial *serial, const uint8_t *bytes, size_t length)
{
	struct vg_message message;
	int error;

	if (!serial->synced) {
		if (length < VG_SYNC_SIZE)
			return 0;
		if (memcmp(bytes, VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE) ||
		    memcmp(bytes + VG_SYNC_TEXT_SIZE, &serial->nonce, sizeof(serial->nonce)))
			return 1;
		serial->synced = true;
		agent_say_hello(&serial->link);
		return VG_SYNC_SIZE;
	}
	if (length < sizeof(message))
		return 0;
	memcpy(&message, bytes, sizeof(message));
	if (message.magic != VG_MESSAGE_MAGIC || message.length > VG_MESSAGE_MAX)
		return -EPROTO;
	if (length < sizeof(message) + message.length)
		return 0;
	error = take_message(serial, &message, bytes + sizeof(message));
	return error ? error : (ssize_t)(sizeof(message) + message.length);
}

static int take_all(struct agent_serial *serial)
{
	struct buffer *in = &serial->in;
	size_t at = 0;
	ssize_t used = 1;

	while (used > 0) {
		used = take_one(serial, in->bytes + at, in->filled - at);
		at += used > 0 ? (size_t)used : 0;
	}
	buffer_take(in, at < in->filled ? at : in->filled);
	return (int)used;
}

static void read_stream(struct agent_serial *serial)
{
	uint8_t bytes[READ];
	ssize_t n = read(serial->fd, bytes, sizeof(bytes));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		lose_port(serial);
		return;
	}
	if (n == 0) {
		lose_stream(serial);
		return;
	}
	if (buffer_add(&serial->in, bytes, (size_t)n) || take_all(serial) < 0) {
		agent_log("the serial stream is damaged: starting again");
		agent_link_down(&serial->link);
		serial->synced = false;
		serial->in.filled = 0;
		send_sync(serial);
	}
}

void agent_serial_event(struct agent_serial *serial, short events)
{
	if (events & POLLOUT)
		flush(serial);
	if (serial->fd >= 0 && (events & POLLIN))
		read_stream(serial);
	else if (serial->fd >= 0 && (events & (POLLHUP | POLLERR | POLLNVAL)))
		lose_stream(serial);
}

/* ---- finding it ---- */

/* A port that is only hung up reads as empty; what it still holds is of a session that has ended. */
static bool unplugged(int fd)
{
	char leftover[64];

	return read(fd, leftover, sizeof(leftover)) < 0 && errno != EAGAIN && errno != EINTR;
}

static void look(struct agent_serial *serial)
{
	struct pollfd state = { .events = POLLOUT };

	if (vg_now_ms() < serial->look_ms)
		return;
	serial->look_ms = vg_now_ms() + LOOK_MS;
	if (serial->fd < 0)
		serial->fd = serial->path ? accept4(serial->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) :
					    agent_open_port(serial);
	if (serial->fd < 0)
		return;
	serial->link.present = true;
	/* the driver reports a hang-up until the host's end is open */
	state.fd = serial->fd;
	if (poll(&state, 1, 0) < 0 || (state.revents & (POLLHUP | POLLERR | POLLNVAL))) {
		if (serial->path || unplugged(serial->fd))
			lose_port(serial);
		return;
	}
	serial->connected = true;
	send_sync(serial);
}

void agent_serial_tick(struct agent_serial *serial)
{
	if (!serial->connected)
		look(serial);
	else if (!serial->synced && vg_now_ms() > serial->sync_ms)
		send_sync(serial);
	flush(serial);
}
