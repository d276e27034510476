/* SPDX-License-Identifier: Apache-2.0 */
/* One session: from link_session.c to link_calls.c. One thread, but for the opening of the lane. */
#ifndef VG_LINK_SESSION_H
#define VG_LINK_SESSION_H

#include <pthread.h>

#include "../transport/conn.h"
#include "link.h"

enum { LINK_HANDSHAKES = 4 };

enum link_state {
	LINK_GREETING,           /* no hello yet */
	LINK_COUNTED,            /* the listener is asked whether there may be one more */
	LINK_ASKING,             /* the broker */
	LINK_OPENING,            /* a lane */
	LINK_OPEN,
	LINK_OVER,
};

/* A call that this host's worker has and has not answered, or whose answer has not been sent. */
struct link_call {
	bool busy;
	uint32_t sequence;
	struct vg_reply reply;
};

struct link_session {
	const struct link_start *start;
	int listener, broker;
	struct {
		int fd;
		SSL *ssl;
		uint64_t until_ms;
	} handshake[LINK_HANDSHAKES];
	int tcp;
	SSL *ssl;
	bool is_known;
	struct vg_link_peer peer;
	uint64_t lost_ms;        /* since when there is no connection */

	struct vg_durable stream;
	struct vg_reader reader;
	bool blocked;            /* the connection takes no more now */
	enum link_state state;
	char text[VG_LINK_TEXT + 1]; /* why it is over */
	struct vg_link_hello hello;
	uint8_t payload[VG_LINK_TEXT + sizeof(struct vg_link_hello)];
	char line[512];          /* of the broker */
	size_t line_filled;
	int agent;               /* a socket that it gave */

	pthread_t opener;
	int opened;              /* eventfd: the opener is done; until it is joined, the next three are its own */
	int open_error;
	char open_text[VG_LINK_TEXT + 1];
	struct vg_conn *opening;
	struct vg_conn *conn;

	struct vg_frame frame;   /* that comes in; it holds the connection's lock */
	bool has_frame;
	bool stalled;            /* there is no place for the next one yet */
	struct link_call call[VG_LINK_CALLS];
	unsigned calls;          /* that are busy */
	struct link_call *answer; /* that goes out, and how much of it has gone */
	size_t answer_at;
};

/* link_calls.c */
extern const struct vg_reader_ops link_reader_ops;
/* Writes answers that are there into the stream; whether it has written any. */
bool link_answer(struct link_session *session);
void link_release(struct link_session *session);
/* link_say.c: a message of text, or without one; what finds no place is not sent. */
void link_say(struct link_session *session, enum vg_link_kind kind, const char *text);
void link_welcome(struct link_session *session);
void link_end(struct link_session *session, enum vg_link_kind kind, const char *text);

/* link_ask.c: who wants what, and whether he may have it */
void link_ask_listener(struct link_session *session);
void link_hear_listener(struct link_session *session);
void link_hear_broker(struct link_session *session);
void link_hear_opener(struct link_session *session);
/* Another connection of this session. */
void link_add_handshake(struct link_session *session, int fd);

#endif
