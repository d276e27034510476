/* SPDX-License-Identifier: Apache-2.0 */
/* The guest side over virtio-serial: the agent relays this process's messages, bulk travels inline. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "conn.h"
#include "util.h"

static bool serial_alive(struct vg_conn *conn)
{
	return !atomic_load_explicit(&conn->lost, memory_order_relaxed);
}

/* ---- incoming ---- */

static int grow_bulk(struct slot *slot, size_t room)
{
	uint8_t *bulk = room <= slot->bulk_room ? slot->bulk : realloc(slot->bulk, room);

	if (!bulk)
		return -ENOMEM;
	slot->bulk = bulk;
	if (room > slot->bulk_room)
		slot->bulk_room = room;
	return 0;
}

/* A bulk message's first word says whose it is. */
static int take_bulk(struct vg_conn *conn, const uint8_t *body, size_t length)
{
	struct slot *slot;
	uint32_t sequence;

	if (length < sizeof(sequence))
		return -EBADMSG;
	memcpy(&sequence, body, sizeof(sequence));
	body += sizeof(sequence);
	length -= sizeof(sequence);
	slot = vg_conn_slot(conn, sequence);
	if (!slot || slot->bulk_filled + length > VG_SERIAL_BULK_MAX)
		return -EBADMSG;
	if (grow_bulk(slot, slot->bulk_filled + length))
		return -ENOMEM;
	memcpy(slot->bulk + slot->bulk_filled, body, length);
	slot->bulk_filled += length;
	return 0;
}

static int take_reply(struct vg_conn *conn, const uint8_t *body, size_t length)
{
	struct vg_reply_header header;
	struct slot *slot;
	uint8_t *data;

	if (length < sizeof(header) || length > VG_BODY_MAX)
		return -EBADMSG;
	memcpy(&header, body, sizeof(header));
	slot = vg_conn_slot(conn, header.sequence);
	if (header.length != length || !slot || header.bulk_length != slot->bulk_filled)
		return -EBADMSG;
	data = vg_slot_data(slot, length - sizeof(header));
	if (!data)
		return -ENOMEM;
	memcpy(data, body + sizeof(header), length - sizeof(header));
	slot->reply = header;
	vg_store32(&slot->state, SLOT_DONE);
	return 0;
}

static int take_message(struct vg_conn *conn, const struct vg_message *message, const uint8_t *body)
{
	uint32_t credit;

	switch (message->kind) {
	case VG_KIND_REPLY:
		return take_reply(conn, body, message->length);
	case VG_KIND_BULK:
		return take_bulk(conn, body, message->length);
	case VG_KIND_CREDIT:
		if (message->length != sizeof(credit))
			return -EBADMSG;
		memcpy(&credit, body, sizeof(credit));
		atomic_fetch_add(&conn->serial.credit, (int64_t)credit);
		return 0;
	case VG_KIND_LOST:
		return -ECONNRESET;
	default:
		return -EBADMSG;
	}
}

/* Takes whole messages off the front of the buffer. */
static int take_messages(struct vg_conn *conn)
{
	struct conn_serial *serial = &conn->serial;
	size_t at = 0;
	int error = 0;

	while (!error && serial->in_filled - at >= sizeof(struct vg_message)) {
		struct vg_message message;

		memcpy(&message, serial->in + at, sizeof(message));
		if (message.magic != VG_MESSAGE_MAGIC || message.length > VG_MESSAGE_MAX)
			return -EBADMSG;
		if (serial->in_filled - at < sizeof(message) + message.length)
			break;
		error = take_message(conn, &message, serial->in + at + sizeof(message));
		at += sizeof(message) + message.length;
	}
	memmove(serial->in, serial->in + at, serial->in_filled - at);
	serial->in_filled -= at;
	return error;
}

static void serial_drain(struct vg_conn *conn)
{
	struct conn_serial *serial = &conn->serial;
	struct pollfd wait = { .fd = conn->socket, .events = POLLIN };
	ssize_t n;
	int error;

	if (poll(&wait, 1, 1) <= 0)
		return;
	n = recv(conn->socket, serial->in + serial->in_filled, sizeof(serial->in) - serial->in_filled, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		vg_conn_lose(conn, "the guest agent has closed the connection");
		return;
	}
	serial->in_filled += (size_t)n;
	error = take_messages(conn);
	if (error)
		vg_conn_lose(conn, error == -ECONNRESET ? "the worker of this VM has ended the session" :
							  "the serial channel is damaged");
}

/* ---- outgoing ---- */

static int serial_reserve(struct vg_conn *conn, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
			  bool waits, struct vg_frame *frame)
{
	struct conn_serial *serial = &conn->serial;

	(void)payload_length;
	(void)waits;
	frame->payload = serial->out + sizeof(struct vg_message) + VG_ALIGN;
	frame->bulk_length = bulk_length;
	if (direction != VG_BULK_TO_WORKER)
		return 0;
	if (serial->bulk_out_room < bulk_length) {
		uint8_t *bulk = realloc(serial->bulk_out, bulk_length);

		if (!bulk)
			return -ENOMEM;
		serial->bulk_out = bulk;
		serial->bulk_out_room = bulk_length;
	}
	frame->bulk = serial->bulk_out;
	return 0;
}

/* The worker takes only so much of a lane ahead of what it has consumed. */
static int take_credit(struct vg_conn *conn, size_t bytes)
{
	for (unsigned round = 0; atomic_load(&conn->serial.credit) < (int64_t)bytes; round++) {
		if (!vg_conn_read(conn))
			vg_backoff(round);
		int error = vg_conn_check(conn);

		if (error)
			return error;
	}
	atomic_fetch_sub(&conn->serial.credit, (int64_t)bytes);
	return 0;
}

static int send_message(struct vg_conn *conn, void *bytes, size_t length)
{
	int error = take_credit(conn, length);

	if (!error)
		error = vg_send_all(conn->socket, bytes, length);
	return error ? vg_conn_lose(conn, "the guest agent has closed the connection") : 0;
}

static int send_bulk(struct vg_conn *conn, const uint8_t *bulk, size_t length)
{
	uint8_t piece[sizeof(struct vg_message) + 8192];

	while (length) {
		size_t part = length < 8192 ? length : 8192;
		struct vg_message message = { VG_MESSAGE_MAGIC, conn->lane, VG_KIND_BULK, (uint32_t)part };

		memcpy(piece, &message, sizeof(message));
		memcpy(piece + sizeof(message), bulk, part);
		int error = send_message(conn, piece, sizeof(message) + part);

		if (error)
			return error;
		bulk += part;
		length -= part;
	}
	return 0;
}

static int serial_send(struct vg_conn *conn, struct vg_frame_header *header, struct vg_frame *frame)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, conn->lane, VG_KIND_FRAME, header->length };
	uint8_t *out = conn->serial.out;

	if (header->flags & VG_HAS_BULK_IN) {
		int error = send_bulk(conn, frame->bulk, frame->bulk_length);

		if (error)
			return error;
	}
	memcpy(out, &message, sizeof(message));
	memcpy(out + sizeof(message), header, sizeof(*header));
	return send_message(conn, out, sizeof(message) + header->length);
}

static void serial_cancel(struct vg_conn *conn, struct vg_frame *frame)
{
	(void)conn;
	(void)frame;
}

static void serial_bulk_done(struct vg_conn *conn, const struct vg_frame *frame)
{
	(void)conn;
	(void)frame;
}

static const void *serial_reply_bulk(struct vg_conn *conn, struct slot *slot, const struct vg_frame *frame)
{
	(void)conn;
	(void)frame;
	return slot->bulk;
}

static void serial_destroy(struct vg_conn *conn)
{
	free(conn->serial.out);
	free(conn->serial.bulk_out);
}

const struct conn_ops vg_serial_ops = {
	.reserve = serial_reserve,
	.send = serial_send,
	.cancel = serial_cancel,
	.drain = serial_drain,
	.alive = serial_alive,
	.bulk_done = serial_bulk_done,
	.reply_bulk = serial_reply_bulk,
	.destroy = serial_destroy,
};

int vg_serial_attach(struct vg_conn *conn)
{
	conn->ops = &vg_serial_ops;
	conn->bulk_max = conn->piece = VG_SERIAL_BULK_MAX;
	conn->serial.out = malloc(sizeof(struct vg_message) + VG_BODY_MAX);
	atomic_store(&conn->serial.credit, VG_SERIAL_CREDIT);
	return conn->serial.out ? 0 : -ENOMEM;
}
