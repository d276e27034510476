/* SPDX-License-Identifier: Apache-2.0 */
/* A session's process: its rights, its connections, its loop. */
#include "link_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#include "../transport/util.h"

enum {
	TICK_MS = 500, FIRST_MS = 10000, FAREWELL_MS = 1000,
	SPINS = 60, SLEEP_NS = 10000, SLEEP_MAX_NS = 1000000,
};

/* ---- connections ---- */

static void drop_handshake(struct link_session *session, unsigned i)
{
	SSL_free(session->handshake[i].ssl);
	session->handshake[i].ssl = NULL;
	vg_close_fd(&session->handshake[i].fd);
}

static void lose_connection(struct link_session *session)
{
	vg_durable_detach(&session->stream);
	SSL_free(session->ssl);
	session->ssl = NULL;
	vg_close_fd(&session->tcp);
	session->blocked = false;
	session->lost_ms = vg_now_ms();
}

static bool is_same(const struct vg_link_peer *one, const struct vg_link_peer *other)
{
	return !strcmp(one->host, other->host) && !strcmp(one->claim, other->claim) &&
	       !strcmp(one->attachment, other->attachment);
}

/* The newest takes the place of what there is: only who has the attachment's key gets so far. */
static void adopt(struct link_session *session, unsigned i)
{
	struct vg_link_peer peer;
	struct vg_link_io io;

	if (vg_tls_peer(session->handshake[i].ssl, &peer) || (session->is_known && !is_same(&peer, &session->peer)))
		return drop_handshake(session, i);
	lose_connection(session);
	session->peer = peer;
	session->is_known = true;
	session->tcp = session->handshake[i].fd;
	session->ssl = session->handshake[i].ssl;
	session->handshake[i].fd = -1;
	session->handshake[i].ssl = NULL;
	io = vg_tls_io(session->ssl);
	vg_durable_attach(&session->stream, &io, vg_now_ms());
}

static void shake_hands(struct link_session *session, unsigned i)
{
	char text[VG_LINK_TEXT];
	int error = vg_tls_handshake(session->handshake[i].ssl, text, sizeof(text));

	if (error == -EAGAIN)
		return;
	if (!error)
		return adopt(session, i);
	if (!session->start->quiet)
		fprintf(stderr, "link: a connection is refused: %s\n", text);
	drop_handshake(session, i);
}

/* ---- the stream ---- */

/* An answer comes in shared memory, and mostly soon: to sleep at once would take longer. */
static void spin(struct link_session *session)
{
	for (unsigned i = 0; i < SPINS && session->calls; i++) {
		if (link_answer(session))
			return;
		vg_pause();
	}
}

/* 0, or why the connection, or all of it, is of no more use. */
static int move(struct link_session *session)
{
	int got = 1, error = vg_durable_tick(&session->stream, vg_now_ms());

	while (!error && got > 0 && session->state != LINK_OVER) {
		got = vg_durable_receive(&session->stream, vg_now_ms());
		error = vg_reader_read(&session->reader, &session->stream);
		if (error == -EAGAIN)
			error = 0; /* the lane takes it later */
	}
	if (!error && session->conn && session->state == LINK_OPEN)
		spin(session);
	if (!error)
		error = got < 0 ? got : vg_durable_send(&session->stream, vg_now_ms());
	session->blocked = error == -EAGAIN;
	return error == -EAGAIN ? 0 : error;
}

/* Without a connection: what has come is executed, what is answered is kept for the next one. */
static int go_on(struct link_session *session)
{
	int error = vg_reader_read(&session->reader, &session->stream);

	link_answer(session);
	return error == -EAGAIN ? 0 : error;
}

static void judge(struct link_session *session, int error)
{
	if (error == -EPIPE || error == -ESTALE)
		session->state = LINK_OVER;
	else if (error == -EPROTO || error == -EMSGSIZE || error == -EINVAL)
		link_end(session, VG_LINK_END, "the relay says what it must not");
	else if (error == -EOPNOTSUPP)
		link_end(session, VG_LINK_END, "the worker of the GPU's host does not have this operation");
	else if (session->conn && vg_conn_lost(session->conn))
		link_end(session, VG_LINK_END, vg_conn_error());
	else if (error)
		lose_connection(session);
}

static bool is_tried(const struct link_session *session)
{
	for (unsigned i = 0; i < LINK_HANDSHAKES; i++)
		if (session->handshake[i].fd >= 0)
			return true;
	return false;
}

static void check_time(struct link_session *session)
{
	uint64_t now = vg_now_ms(), most = session->is_known ? session->start->grace_ms : FIRST_MS;

	for (unsigned i = 0; i < LINK_HANDSHAKES; i++)
		if (session->handshake[i].fd >= 0 && now > session->handshake[i].until_ms)
			drop_handshake(session, i);
	if (session->tcp >= 0)
		return;
	/* a stranger has one try */
	if (now - session->lost_ms > most || session->listener < 0 || (!session->is_known && !is_tried(session)))
		session->state = LINK_OVER;
}

/* ---- the loop ---- */

enum { LISTENER, BROKER, OPENED, LINK, HANDSHAKES, ALL = HANDSHAKES + LINK_HANDSHAKES };

/* While the worker has calls, its answers are looked at ever more seldom; other work wakes at once. */
static void wait_for_work(const struct link_session *session, struct pollfd *wait, unsigned *round)
{
	struct timespec pause = { .tv_nsec = TICK_MS * 1000000L };
	unsigned step;

	if ((session->calls || session->stalled) && session->state == LINK_OPEN) {
		step = (*round)++ / 16;
		pause.tv_nsec = step < 7 ? (long)SLEEP_NS << step : SLEEP_MAX_NS;
	}
	ppoll(wait, ALL, &pause, NULL);
}

static void watch(const struct link_session *session, struct pollfd *wait)
{
	bool asks = session->broker >= 0 && session->state >= LINK_ASKING;

	wait[LISTENER] = (struct pollfd){ session->listener, POLLIN, 0 };
	wait[BROKER] = (struct pollfd){ asks ? session->broker : -1, POLLIN, 0 };
	wait[OPENED] = (struct pollfd){ session->opened, POLLIN, 0 };
	wait[LINK] = (struct pollfd){ session->tcp, (short)(POLLIN | (session->blocked ? POLLOUT : 0)), 0 };
	for (unsigned i = 0; i < LINK_HANDSHAKES; i++)
		wait[HANDSHAKES + i] = (struct pollfd){
			session->handshake[i].fd,
			session->handshake[i].ssl ? vg_tls_events(session->handshake[i].ssl) : 0, 0 };
}

static void hear(struct link_session *session, const struct pollfd *wait)
{
	if (wait[BROKER].revents)
		link_hear_broker(session);
	if (wait[OPENED].revents)
		link_hear_opener(session);
	for (unsigned i = 0; i < LINK_HANDSHAKES; i++)
		if (wait[HANDSHAKES + i].revents && session->handshake[i].fd == wait[HANDSHAKES + i].fd)
			shake_hands(session, i);
	if (wait[LISTENER].revents)
		link_hear_listener(session);
}

static void loop(struct link_session *session)
{
	unsigned round = 0;

	while (session->state != LINK_OVER) {
		struct pollfd wait[ALL] = { 0 };
		uint64_t before = session->stream.received + session->stream.written + session->stream.taken;
		int error = 0;

		watch(session, wait);
		wait_for_work(session, wait, &round);
		hear(session, wait);
		if (session->tcp >= 0 && session->state != LINK_OVER)
			error = move(session);
		else if (session->tcp < 0 && session->state == LINK_OPEN)
			error = go_on(session);
		if (session->stream.received + session->stream.written + session->stream.taken != before)
			round = 0;
		if (error || !round || round % 16 == 0)
			judge(session, error);
		check_time(session);
	}
}

/* What was said last must come: who closes while something has come that was not read takes it back. */
static void say_farewell(struct link_session *session)
{
	uint64_t until = vg_now_ms() + FAREWELL_MS;
	uint8_t bytes[4096];

	while (session->tcp >= 0 && vg_now_ms() < until) {
		struct pollfd wait = { session->tcp, POLLIN | POLLOUT, 0 };
		int error = vg_durable_receive(&session->stream, vg_now_ms());

		if (error >= 0)
			error = vg_durable_send(&session->stream, vg_now_ms());
		if (error && error != -EAGAIN)
			return;
		if (!error && session->stream.resumed)
			break;
		wait.events = error == -EAGAIN ? POLLIN | POLLOUT : POLLIN;
		poll(&wait, 1, 100);
	}
	if (session->tcp < 0)
		return;
	SSL_shutdown(session->ssl);
	shutdown(session->tcp, SHUT_WR);
	while (vg_now_ms() < until) {
		struct pollfd wait = { session->tcp, POLLIN, 0 };

		if (poll(&wait, 1, FAREWELL_MS) != 1 || recv(session->tcp, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
			return;
	}
}

_Noreturn void link_serve(const struct link_start *start)
{
	struct link_session *session = calloc(1, sizeof(*session));

	if (!session || vg_durable_init(&session->stream))
		_exit(1);
	session->start = start;
	session->listener = start->listener;
	session->broker = start->broker;
	session->tcp = session->agent = -1;
	session->lost_ms = vg_now_ms();
	session->opened = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	session->reader = (struct vg_reader){ .ops = &link_reader_ops, .context = session };
	for (unsigned i = 0; i < LINK_HANDSHAKES; i++)
		session->handshake[i].fd = -1;
	link_add_handshake(session, start->connection);
	loop(session);
	if (session->text[0])
		fprintf(stderr, "link: %s, %s of %s (process %u): %s\n", session->peer.claim, session->peer.attachment,
			session->peer.host, session->hello.pid, session->text);
	say_farewell(session);
	if (session->conn)
		link_release(session);
	_exit(0);
}
