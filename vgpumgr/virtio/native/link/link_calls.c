/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from the other host into the lane, and answers out of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link_parts.h"

/* ---- in ---- */

static int begin_frame(struct link_session *session, const struct vg_link_message *message, uint8_t **payload,
		       uint8_t **bulk)
{
	enum vg_bulk direction = message->flags & VG_LINK_BULK_IN ? VG_BULK_TO_WORKER :
				 message->flags & VG_LINK_BULK_OUT ? VG_BULK_TO_GUEST : VG_BULK_NONE;
	int error;

	if (session->state != LINK_OPEN || link_shares(message->op))
		return -EPROTO;
	/* the VM's process has no more of them than that */
	if (message->flags & VG_LINK_WANTS_REPLY && session->calls == VG_LINK_CALLS)
		return -EPROTO;
	error = vg_begin_ahead(session->conn, message->op, message->length, direction,
			       message->bulk + message->wish, &session->frame);
	session->stalled = error == -EAGAIN;
	if (error)
		return error;
	session->has_frame = true;
	*payload = session->frame.payload;
	*bulk = session->frame.bulk;
	return 0;
}

static int begin(void *context, const struct vg_link_message *message, uint8_t **payload, uint8_t **bulk)
{
	struct link_session *session = context;

	if (message->kind == VG_LINK_FRAME)
		return begin_frame(session, message, payload, bulk);
	if (message->kind == VG_LINK_HELLO && session->state != LINK_GREETING)
		return -EPROTO;
	*payload = session->payload;
	*bulk = NULL;
	return 0;
}

static int end_frame(struct link_session *session, const struct vg_link_message *message)
{
	struct link_call *call = session->call;
	int error;

	session->has_frame = false;
	if (!(message->flags & VG_LINK_WANTS_REPLY))
		return vg_post(session->conn, &session->frame);
	while (call->busy)
		call++; /* begin_frame() has counted */
	error = vg_call_send(session->conn, &session->frame, &call->reply);
	if (error)
		return error == -EAGAIN ? -EPROTO : error;
	call->busy = true;
	call->sequence = message->sequence;
	session->calls++;
	return 0;
}

static int end(void *context, const struct vg_link_message *message)
{
	struct link_session *session = context;

	if (message->kind == VG_LINK_FRAME)
		return end_frame(session, message);
	if (message->kind == VG_LINK_END) {
		session->state = LINK_OVER;
		return 0;
	}
	memcpy(&session->hello, session->payload, sizeof(session->hello));
	if (session->hello.version != VG_LINK_VERSION || session->hello.zero)
		return -EPROTO;
	link_ask_listener(session);
	return 0;
}

const struct vg_reader_ops link_reader_ops = { begin, end };

/* ---- answers ---- */

static bool is_answered(const struct link_call *call)
{
	const struct slot *slot = (const struct slot *)(uintptr_t)call->reply.internal[0];

	return call->busy && vg_load32(&slot->state) == SLOT_DONE;
}

static struct link_call *find_answered(struct link_session *session)
{
	vg_conn_read(session->conn);
	for (unsigned i = 0; i < VG_LINK_CALLS; i++)
		if (is_answered(&session->call[i]))
			return &session->call[i];
	return NULL;
}

/* From where it was left; whether all of it has gone. */
static bool write_part(struct link_session *session, size_t *passed, const void *bytes, size_t length)
{
	size_t done = session->answer_at > *passed ? session->answer_at - *passed : 0;

	*passed += length;
	if (done >= length)
		return true;
	session->answer_at += vg_durable_write(&session->stream, (const uint8_t *)bytes + done, length - done);
	return session->answer_at == *passed;
}

static bool write_answer(struct link_session *session)
{
	const struct vg_reply *reply = &session->answer->reply;
	struct vg_link_message message = {
		.kind = VG_LINK_REPLY,
		.length = (uint32_t)reply->length,
		.op = (uint32_t)reply->status,
		.sequence = session->answer->sequence,
		.flags = reply->output ? VG_LINK_OUTPUT : 0,
		.bulk = (uint32_t)reply->bulk_length,
	};
	size_t passed = 0;

	return write_part(session, &passed, &message, sizeof(message)) &&
	       write_part(session, &passed, reply->data, reply->length) &&
	       write_part(session, &passed, reply->bulk, reply->bulk_length);
}

bool link_answer(struct link_session *session)
{
	bool any = false;

	while (session->calls) {
		if (!session->answer) {
			session->answer = find_answered(session);
			if (!session->answer)
				return any;
			session->answer_at = 0;
			vg_call_wait(session->conn, &session->answer->reply); /* it is there */
		}
		any = true;
		if (!write_answer(session))
			return any;
		vg_reply_done(session->conn, &session->answer->reply);
		session->answer->busy = false;
		session->answer = NULL;
		session->answer_at = 0;
		session->calls--;
	}
	return any;
}

void link_release(struct link_session *session)
{
	if (session->has_frame)
		vg_cancel(session->conn, &session->frame);
	vg_conn_close(session->conn);
	session->conn = NULL;
}
