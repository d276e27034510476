/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

#include <errno.h>
#include <string.h>

static bool is_plain(const struct vg_link_message *m)
{
	return !m->op && !m->sequence && !m->flags && !m->bulk && !m->wish;
}

static bool is_frame(const struct vg_reader *reader, const struct vg_link_message *m)
{
	uint32_t direction = m->flags & (VG_LINK_BULK_IN | VG_LINK_BULK_OUT);

	if (m->length > VG_PAYLOAD_RING_MAX || m->flags & ~(VG_LINK_WANTS_REPLY | direction))
		return false;
	if (direction == (VG_LINK_BULK_IN | VG_LINK_BULK_OUT))
		return false;
	if (direction != VG_LINK_BULK_IN && m->bulk)
		return false;
	if (direction != VG_LINK_BULK_OUT && m->wish)
		return false;
	if (direction == VG_LINK_BULK_OUT && !(m->flags & VG_LINK_WANTS_REPLY))
		return false;
	return m->bulk <= reader->bulk_max && m->wish <= reader->bulk_max;
}

static bool is_reply(const struct vg_reader *reader, const struct vg_link_message *m)
{
	return m->length <= VG_PAYLOAD_RING_MAX && !(m->flags & ~VG_LINK_OUTPUT) && !m->wish && m->bulk <= reader->bulk_max;
}

static bool is_welcome(const struct vg_link_message *m)
{
	return is_plain(m) && m->length >= sizeof(struct vg_link_welcome) &&
	       m->length <= sizeof(struct vg_link_welcome) + VG_OPERATIONS_MAX * sizeof(uint64_t);
}

static bool can_be(const struct vg_reader *reader, const struct vg_link_message *m)
{
	if (m->zero)
		return false;
	switch (m->kind) {
	case VG_LINK_HELLO:
		return !reader->relay && is_plain(m) && m->length == sizeof(struct vg_link_hello);
	case VG_LINK_WELCOME:
		return reader->relay && is_welcome(m);
	case VG_LINK_REFUSED:
		return reader->relay && is_plain(m) && m->length <= VG_LINK_TEXT;
	case VG_LINK_FRAME:
		return !reader->relay && is_frame(reader, m);
	case VG_LINK_REPLY:
		return reader->relay && is_reply(reader, m);
	case VG_LINK_END:
		return is_plain(m) && m->length <= VG_LINK_TEXT;
	default:
		return false;
	}
}

/* Bytes that come in pieces; whether all of them are there now. */
static bool collect(struct vg_durable *stream, uint8_t *to, size_t length, size_t *filled)
{
	const uint8_t *at;
	size_t n;

	while (*filled < length && (n = vg_durable_peek(stream, &at))) {
		if (n > length - *filled)
			n = length - *filled;
		memcpy(to + *filled, at, n);
		*filled += n;
		vg_durable_take(stream, n);
	}
	return *filled == length;
}

static int take_head(struct vg_reader *reader, struct vg_durable *stream)
{
	if (!collect(stream, (uint8_t *)&reader->message, sizeof(reader->message), &reader->filled))
		return 0;
	if (!can_be(reader, &reader->message))
		return -EPROTO; /* and so it stays */
	reader->has_head = true;
	reader->filled = 0;
	return 0;
}

static bool take_body(struct vg_reader *reader, struct vg_durable *stream)
{
	size_t length = reader->message.length, filled = reader->filled < length ? reader->filled : length;
	size_t bulk = reader->filled - filled;
	bool complete = collect(stream, reader->payload, length, &filled) &&
			collect(stream, reader->bulk, reader->message.bulk, &bulk);

	reader->filled = filled + bulk;
	return complete;
}

int vg_reader_read(struct vg_reader *reader, struct vg_durable *stream)
{
	int error = 0;

	while (!error) {
		if (!reader->has_head) {
			error = take_head(reader, stream);
			if (error || !reader->has_head)
				return error;
		}
		if (!reader->begun) {
			error = reader->ops->begin(reader->context, &reader->message, &reader->payload, &reader->bulk);
			if (error)
				return error;
			reader->begun = true;
		}
		if (!take_body(reader, stream))
			return 0;
		reader->has_head = reader->begun = false;
		reader->filled = 0;
		error = reader->ops->end(reader->context, &reader->message);
	}
	return error;
}
