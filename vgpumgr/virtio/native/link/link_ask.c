/* SPDX-License-Identifier: Apache-2.0 */
/* Before there is a lane: the listener counts, the broker decides and gives the channel's agent, the agent gives the lane. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "../transport/util.h"
#include "json.h"
#include "link_parts.h"

enum { HANDSHAKE_MS = 10000 };

/* ---- the listener ---- */

void link_add_handshake(struct link_session *session, int fd)
{
	unsigned chosen = 0;

	/* the oldest has had the most time: who knows the session's id cannot keep its owner out */
	for (unsigned i = 0; i < LINK_HANDSHAKES; i++) {
		if (session->handshake[i].fd < 0) {
			chosen = i;
			break;
		}
		if (session->handshake[i].until_ms < session->handshake[chosen].until_ms)
			chosen = i;
	}
	SSL_free(session->handshake[chosen].ssl);
	vg_close_fd(&session->handshake[chosen].fd);
	session->handshake[chosen].fd = fd;
	session->handshake[chosen].ssl = vg_tls_server(session->start->identity, session->start->trust, fd);
	session->handshake[chosen].until_ms = vg_now_ms() + HANDSHAKE_MS;
	if (!session->handshake[chosen].ssl)
		vg_close_fd(&session->handshake[chosen].fd);
}

void link_ask_listener(struct link_session *session)
{
	struct link_note note = { .kind = LINK_HOST };

	memcpy(note.host, session->peer.host, sizeof(note.host));
	session->state = LINK_COUNTED;
	if (vg_send_fds(session->listener, &note, sizeof(note), NULL, 0))
		link_end(session, VG_LINK_REFUSED, "the host's listener for links has ended");
}

static void ask_broker(struct link_session *session)
{
	char name[sizeof(session->hello.name) + 1], quoted[80], line[512];

	if (session->broker < 0) {
		snprintf(line, sizeof(line), "the daemon of the GPU's host does not run: %s", strerror(-session->broker));
		return link_end(session, VG_LINK_REFUSED, line);
	}
	vg_clean_text(name, sizeof(name), session->hello.name, sizeof(session->hello.name));
	vg_json_quote(name, quoted, sizeof(quoted));
	snprintf(line, sizeof(line),
		 "{\"link\": {\"host\": \"%s\", \"claim\": \"%s\", \"attachment\": \"%s\", \"pid\": %u, \"name\": %s}}\n",
		 session->peer.host, session->peer.claim, session->peer.attachment, session->hello.pid, quoted);
	if (vg_send_all(session->broker, line, strlen(line)))
		return link_end(session, VG_LINK_REFUSED, "the daemon of the GPU's host has closed the connection");
	session->state = LINK_ASKING;
}

void link_hear_listener(struct link_session *session)
{
	struct link_note note;
	int fd = -1;

	if (vg_recv_fds(session->listener, &note, sizeof(note), &fd, 1))
		return vg_close_fd(&session->listener);
	if (note.kind == LINK_CONNECTION && fd >= 0)
		return link_add_handshake(session, fd);
	vg_close_fd(&fd);
	if (session->state != LINK_COUNTED)
		return;
	if (note.kind == LINK_WELCOME)
		ask_broker(session);
	else
		link_end(session, VG_LINK_REFUSED, "the GPU's host has as many processes of this host as it takes");
}

/* ---- the broker ---- */

static void *open_lane(void *argument)
{
	struct link_session *session = argument;
	char name[sizeof(session->hello.name) + 1];
	uint64_t one = 1;

	vg_clean_text(name, sizeof(name), session->hello.name, sizeof(session->hello.name));
	session->open_error = vg_conn_open_on(link_interface, VGPUMGR_VERSION, name, session->agent, &session->opening);
	snprintf(session->open_text, sizeof(session->open_text), "%s", vg_conn_error());
	(void)!write(session->opened, &one, sizeof(one));
	return NULL;
}

static void take_answer(struct link_session *session)
{
	const char *error = vg_json_member(session->line, "error"), *ok = vg_json_member(session->line, "ok");
	char text[VG_LINK_TEXT + 1];

	if (error && !vg_json_string(error, text, sizeof(text)))
		return link_end(session, VG_LINK_REFUSED, text);
	if (!ok || strncmp(ok, "true", 4) || session->agent < 0)
		return link_end(session, VG_LINK_REFUSED, "the daemon of the GPU's host gives no answer that makes sense");
	session->state = LINK_OPENING;
	if (pthread_create(&session->opener, NULL, open_lane, session))
		link_end(session, VG_LINK_REFUSED, "the GPU's host cannot start a thread");
}

/* Its line, and a descriptor with any part of it. Afterwards it says nothing more that matters. */
void link_hear_broker(struct link_session *session)
{
	char byte;
	int fd = -1;

	while (session->state == LINK_ASKING) {
		ssize_t n = recv(session->broker, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || vg_recv_fds(session->broker, &byte, 1, &fd, 1))
			return link_end(session, VG_LINK_REFUSED, "the daemon of the GPU's host has closed the connection");
		if (fd >= 0) {
			vg_close_fd(&session->agent);
			session->agent = fd;
		}
		if (byte == '\n') {
			session->line[session->line_filled] = '\0';
			return take_answer(session);
		}
		if (session->line_filled + 1 < sizeof(session->line))
			session->line[session->line_filled++] = byte;
	}
	if (session->state > LINK_ASKING && recv(session->broker, &byte, 1, MSG_DONTWAIT) == 0)
		vg_close_fd(&session->broker); /* a daemon that ends takes no session along */
}

/* ---- the lane ---- */

void link_hear_opener(struct link_session *session)
{
	char text[VG_LINK_TEXT + 1];
	uint64_t count;

	(void)!read(session->opened, &count, sizeof(count));
	pthread_join(session->opener, NULL);
	session->agent = -1; /* the connection's */
	session->conn = session->opening;
	if (session->state != LINK_OPENING)
		return;
	if (session->open_error) {
		snprintf(text, sizeof(text), "%s", session->open_text[0] ? session->open_text : strerror(-session->open_error));
		return link_end(session, VG_LINK_REFUSED, text);
	}
	if (vg_conn_bulk_max(session->conn) < session->hello.bulk_max) {
		snprintf(text, sizeof(text), "the channel of the GPU's host takes copies of %zu bytes, this VM's channel %u: "
			 "give the VM's channel less memory", vg_conn_bulk_max(session->conn), session->hello.bulk_max);
		return link_end(session, VG_LINK_REFUSED, text);
	}
	link_welcome(session);
}
