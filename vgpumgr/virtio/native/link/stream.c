/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64, BODY_MAX = VG_LINK_RECORD_MAX - VG_LINK_HEAD, TOLD_STEP = VG_LINK_WINDOW / 8 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire format");

int vg_durable_init(struct vg_durable *stream)
{
	*stream = (struct vg_durable){ .out = malloc(VG_LINK_WINDOW), .in = malloc(VG_LINK_WINDOW) };
	return stream->out && stream->in ? 0 : -ENOMEM;
}

void vg_durable_free(struct vg_durable *stream)
{
	free(stream->out);
	free(stream->in);
	stream->out = stream->in = NULL;
}

/* ---- rings: a place is an offset into the stream, modulo the window ---- */

static size_t together(uint64_t at, size_t length)
{
	size_t left = VG_LINK_WINDOW - at % VG_LINK_WINDOW;

	return length < left ? length : left;
}

static void copy_out(const uint8_t *ring, uint64_t at, uint8_t *to, size_t length)
{
	size_t first = together(at, length);

	memcpy(to, ring + at % VG_LINK_WINDOW, first);
	memcpy(to + first, ring, length - first);
}

size_t vg_durable_write(struct vg_durable *stream, const void *bytes, size_t length)
{
	size_t places = VG_LINK_WINDOW - (size_t)(stream->written - stream->acknowledged), first;

	if (length > places)
		length = places;
	if (!length)
		return 0;
	first = together(stream->written, length);
	memcpy(stream->out + stream->written % VG_LINK_WINDOW, bytes, first);
	memcpy(stream->out, (const uint8_t *)bytes + first, length - first);
	stream->written += length;
	return length;
}

size_t vg_durable_peek(const struct vg_durable *stream, const uint8_t **bytes)
{
	*bytes = stream->in + stream->taken % VG_LINK_WINDOW;
	return together(stream->taken, (size_t)(stream->received - stream->taken));
}

void vg_durable_take(struct vg_durable *stream, size_t length)
{
	stream->taken += length;
	if (stream->taken - stream->told >= TOLD_STEP)
		stream->says_taken = true;
}

/* ---- connections ---- */

static void stage(struct vg_durable *stream, uint16_t kind, uint16_t flags, uint64_t value, size_t length)
{
	struct vg_link_head head = { .length = (uint32_t)length, .kind = kind, .flags = flags, .value = value };

	memcpy(stream->staged, &head, sizeof(head));
	stream->staged_length = sizeof(head) + length;
	stream->staged_sent = 0;
}

void vg_durable_attach(struct vg_durable *stream, const struct vg_link_io *io, uint64_t now_ms)
{
	stream->io = *io;
	stream->connected = true;
	stream->resumed = false;
	stream->head_filled = stream->body_left = 0;
	stream->heard_ms = stream->said_ms = now_ms;
	stream->says_taken = true; /* what was said on the last connection may not have come */
	stream->says_ping = false;
	stage(stream, VG_LINK_RESUME, stream->again ? VG_LINK_AGAIN : 0, stream->received, 0);
	stream->again = true;
}

void vg_durable_detach(struct vg_durable *stream)
{
	stream->connected = stream->resumed = false;
	stream->staged_length = stream->staged_sent = 0;
}

/* ---- out ---- */

/* Whether there is a record to send, which is staged then. */
static bool stage_next(struct vg_durable *stream)
{
	size_t length = (size_t)(stream->written - stream->sent);

	if (!stream->resumed)
		return false; /* it is not known yet where the other side goes on */
	if (length > BODY_MAX)
		length = BODY_MAX;
	if (length) {
		copy_out(stream->out, stream->sent, stream->staged + VG_LINK_HEAD, length);
		stream->sent += length;
	} else if (!stream->says_taken && !stream->says_ping) {
		return false;
	}
	stage(stream, length ? VG_LINK_DATA : stream->says_taken ? VG_LINK_ACK : VG_LINK_PING, 0, stream->taken, length);
	stream->told = stream->taken;
	stream->says_taken = stream->says_ping = false;
	return true;
}

int vg_durable_send(struct vg_durable *stream, uint64_t now_ms)
{
	while (stream->connected) {
		ssize_t n;

		if (stream->staged_sent == stream->staged_length && !stage_next(stream))
			return 0;
		n = stream->io.write(stream->io.context, stream->staged + stream->staged_sent,
				     stream->staged_length - stream->staged_sent);
		if (n == -EAGAIN)
			return -EAGAIN;
		if (n <= 0)
			return -ECONNRESET;
		stream->staged_sent += (size_t)n;
		stream->said_ms = now_ms;
	}
	return 0;
}

/* ---- in ---- */

static int take_resume(struct vg_durable *stream)
{
	const struct vg_link_head *head = &stream->head;

	if (stream->resumed || head->length || head->flags & ~VG_LINK_AGAIN || head->value > stream->written)
		return -EPROTO;
	/* a process that begins anew has nothing of what the one before it had */
	if (head->value < stream->acknowledged || (stream->established && !(head->flags & VG_LINK_AGAIN)))
		return -ESTALE;
	stream->sent = head->value;
	stream->resumed = stream->established = true;
	return 0;
}

static int take_head(struct vg_durable *stream)
{
	const struct vg_link_head *head = &stream->head;

	if (head->kind == VG_LINK_RESUME)
		return take_resume(stream);
	if (!stream->resumed || head->flags || head->kind < VG_LINK_DATA || head->kind > VG_LINK_PING)
		return -EPROTO;
	/* it can have taken only what was sent, and takes nothing back */
	if (head->value > stream->sent || head->value < stream->acknowledged)
		return -EPROTO;
	if (head->kind == VG_LINK_DATA ? !head->length || head->length > BODY_MAX : head->length)
		return -EPROTO;
	if (head->length > VG_LINK_WINDOW - (stream->received - stream->taken))
		return -EPROTO;
	stream->acknowledged = head->value;
	stream->body_left = head->length;
	return 0;
}

/* 1: something was read; else as the connection says. */
static int read_some(struct vg_durable *stream, uint64_t now_ms)
{
	bool body = stream->body_left != 0;
	uint8_t *to = body ? stream->in + stream->received % VG_LINK_WINDOW :
			     (uint8_t *)&stream->head + stream->head_filled;
	size_t size = body ? together(stream->received, stream->body_left) : VG_LINK_HEAD - stream->head_filled;
	ssize_t n = stream->io.read(stream->io.context, to, size);

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return !n ? -EPIPE : n == -EACCES ? -EACCES : -ECONNRESET;
	stream->heard_ms = now_ms;
	if (body) {
		stream->received += (uint64_t)n;
		stream->body_left -= (size_t)n;
		return 1;
	}
	stream->head_filled += (size_t)n;
	if (stream->head_filled < VG_LINK_HEAD)
		return 1;
	stream->head_filled = 0;
	n = take_head(stream);
	return n ? (int)n : 1;
}

int vg_durable_receive(struct vg_durable *stream, uint64_t now_ms)
{
	int got = stream->connected;

	for (unsigned i = 0; i < AT_ONCE && got > 0; i++)
		got = read_some(stream, now_ms);
	return got;
}

int vg_durable_tick(struct vg_durable *stream, uint64_t now_ms)
{
	if (!stream->connected)
		return 0;
	if (now_ms - stream->heard_ms >= VG_LINK_DEAD_MS)
		return -ETIMEDOUT;
	if (now_ms - stream->said_ms >= VG_LINK_PING_MS)
		stream->says_ping = true;
	return 0;
}
