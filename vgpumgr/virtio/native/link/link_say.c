/* SPDX-License-Identifier: Apache-2.0 */
/* What a session says to the relay beside answers. */
#include <stdio.h>
#include <string.h>

#include "link_parts.h"

void link_say(struct link_session *session, enum vg_link_kind kind, const char *text)
{
	struct vg_link_message message = { .kind = kind, .length = (uint32_t)strnlen(text, VG_LINK_TEXT) };

	/* after half an answer nothing can be said; the end of the connection says it */
	if (session->answer_at || VG_LINK_WINDOW - (session->stream.written - session->stream.acknowledged) <
					  sizeof(message) + message.length)
		return;
	vg_durable_write(&session->stream, &message, sizeof(message));
	vg_durable_write(&session->stream, text, message.length);
}

void link_end(struct link_session *session, enum vg_link_kind kind, const char *text)
{
	if (session->state == LINK_OVER)
		return;
	link_say(session, kind, text);
	snprintf(session->text, sizeof(session->text), "%s", text);
	session->state = LINK_OVER;
}

void link_welcome(struct link_session *session)
{
	struct vg_link_message message = { .kind = VG_LINK_WELCOME };
	struct vg_link_welcome welcome = { .bulk_max = (uint32_t)vg_conn_bulk_max(session->conn) };
	uint64_t words[VG_OPERATIONS_MAX];

	for (uint32_t i = 0; i < link_interface->count && i < VG_OPERATIONS_MAX; i++) {
		uint32_t op = (uint32_t)(link_interface->words[i] >> VG_ID_SHIFT);

		if (!vg_conn_refuses(session->conn, op) && !link_shares(op))
			words[welcome.count++] = link_interface->words[i];
	}
	snprintf(welcome.device, sizeof(welcome.device), "%s", vg_conn_device_name(session->conn));
	snprintf(welcome.api_version, sizeof(welcome.api_version), "%s", VGPUMGR_VERSION);
	message.length = (uint32_t)(sizeof(welcome) + welcome.count * sizeof(words[0]));
	vg_durable_write(&session->stream, &message, sizeof(message));
	vg_durable_write(&session->stream, &welcome, sizeof(welcome));
	vg_durable_write(&session->stream, words, welcome.count * sizeof(words[0]));
	session->reader.bulk_max = welcome.bulk_max;
	session->state = LINK_OPEN;
}
