/* SPDX-License-Identifier: Apache-2.0 */
/* The link thread: connections, one after the other, and what comes on them. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../transport/util.h"
#include "relay_parts.h"

enum { FIRST_MS = 5000, HANDSHAKE_MS = 10000, PAUSE_MS = 50, PAUSE_MAX_MS = 1000, TICK_MS = 500, FAREWELL_MS = 300 };

void relay_wake(struct relay *relay)
{
	uint64_t one = 1;

	(void)!write(relay->wake, &one, sizeof(one));
}

/* ---- what comes: under the lock ---- */

static struct relay_call *find_call(struct relay *relay, const struct vg_link_message *message)
{
	struct relay_call *call = &relay->call[message->sequence % VG_LINK_CALLS];

	return call->busy && call->sequence == message->sequence && message->bulk <= call->bulk_length ? call : NULL;
}

static int begin(void *context, const struct vg_link_message *message, uint8_t **payload, uint8_t **bulk)
{
	struct relay *relay = context;
	struct relay_call *call = NULL;

	if (message->kind == VG_LINK_REPLY) {
		call = relay->state == RELAY_OPEN ? find_call(relay, message) : NULL;
		if (!call)
			return -EPROTO;
	} else if (message->kind != VG_LINK_END && relay->state != RELAY_OPENING) {
		return -EPROTO;
	}
	*payload = relay->payload;
	*bulk = call ? call->bulk : NULL;
	return 0;
}

static int take_welcome(struct relay *relay, uint32_t length)
{
	struct vg_link_welcome welcome;

	memcpy(&welcome, relay->payload, sizeof(welcome));
	if (welcome.count > VG_OPERATIONS_MAX || length != sizeof(welcome) + welcome.count * sizeof(uint64_t))
		return -EPROTO;
	memcpy(relay->words, relay->payload + sizeof(welcome), welcome.count * sizeof(uint64_t));
	for (uint32_t i = 1; i < welcome.count; i++)
		if (relay->words[i] >> VG_ID_SHIFT <= relay->words[i - 1] >> VG_ID_SHIFT)
			return -EPROTO;
	relay->count = welcome.count;
	relay->state = RELAY_OPEN;
	return 0;
}

static void end_session(struct relay *relay, const char *text, size_t length)
{
	if (relay->state != RELAY_ENDED)
		vg_clean_text(relay->text, sizeof(relay->text), text, length);
	relay->state = RELAY_ENDED;
}

static void take_reply(struct relay *relay, const struct vg_link_message *message)
{
	relay->call[message->sequence % VG_LINK_CALLS].busy = false;
	vg_lane_output(relay->lane, message->flags & VG_LINK_OUTPUT);
	vg_answer(relay->lane, message->sequence, (int32_t)message->op, relay->payload, message->length, message->bulk);
}

static int end(void *context, const struct vg_link_message *message)
{
	struct relay *relay = context;

	if (message->kind == VG_LINK_WELCOME)
		return take_welcome(relay, message->length);
	if (message->kind == VG_LINK_REPLY)
		take_reply(relay, message);
	else
		end_session(relay, (const char *)relay->payload, message->length);
	return 0;
}

const struct vg_reader_ops relay_reader_ops = { begin, end };

/* ---- one connection ---- */

static int shake_hands(struct relay *relay, char *text, size_t size)
{
	uint64_t until = vg_now_ms() + HANDSHAKE_MS;
	int error;

	while ((error = vg_tls_handshake(relay->ssl, text, size)) == -EAGAIN) {
		error = relay_wait(relay, relay->tcp, vg_tls_events(relay->ssl), until);
		if (error == -ETIMEDOUT)
			snprintf(text, size, "the other host does not answer in %d s", HANDSHAKE_MS / 1000);
		if (error)
			return error;
	}
	return error;
}

static int connect_link(struct relay *relay, const char *why, char *text, size_t size)
{
	struct vg_link_preamble preamble = { .magic = { 'V', 'G', 'P', 'U', 'L', 'I', 'N', 'K' },
					     .version = VG_LINK_VERSION };
	int error = relay_dial(relay, why, text, size);

	if (error)
		return error;
	memcpy(preamble.id, relay->id, sizeof(preamble.id));
	if (vg_send_all(relay->tcp, &preamble, sizeof(preamble))) {
		snprintf(text, size, "the other host has closed the connection");
		return -ECONNRESET;
	}
	relay->ssl = vg_tls_client(relay->directory, relay->tcp, text, size);
	return relay->ssl ? shake_hands(relay, text, size) : -EACCES;
}

static void disconnect(struct relay *relay)
{
	SSL_free(relay->ssl);
	relay->ssl = NULL;
	vg_close_fd(&relay->tcp);
}

static int receive_all(struct relay *relay)
{
	int got = 1, error = 0;

	while (got > 0 && !error && relay->state != RELAY_ENDED) {
		got = vg_durable_receive(&relay->stream, vg_now_ms());
		error = vg_reader_read(&relay->reader, &relay->stream);
	}
	return error ? error : got;
}

/* Under the lock. 0, or why the connection is of no more use. */
static int turn(struct relay *relay)
{
	int error = vg_durable_tick(&relay->stream, vg_now_ms());

	if (!error)
		error = receive_all(relay);
	if (!error && relay->broken)
		error = -ECONNRESET;
	if (!error) {
		error = vg_durable_send(&relay->stream, vg_now_ms());
		relay->blocked = error == -EAGAIN;
		if (relay->blocked)
			error = 0;
	}
	pthread_cond_broadcast(&relay->changed);
	return error;
}

/* What is on its way to the other side may be lost if this one closes while something has come that it has not read. */
static void say_farewell(struct relay *relay)
{
	uint64_t until = vg_now_ms() + FAREWELL_MS;
	uint8_t bytes[4096];

	SSL_shutdown(relay->ssl);
	shutdown(relay->tcp, SHUT_WR);
	while (vg_now_ms() < until) {
		struct pollfd wait = { relay->tcp, POLLIN, 0 };

		if (poll(&wait, 1, (int)FAREWELL_MS) != 1 || recv(relay->tcp, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
			return;
	}
}

/* Until it breaks, or all is over: then -ECANCELED. */
static int serve(struct relay *relay)
{
	struct vg_link_io io = vg_tls_io(relay->ssl);
	int error = 0;
	bool over = false;

	pthread_mutex_lock(&relay->lock);
	vg_durable_attach(&relay->stream, &io, vg_now_ms());
	relay->broken = false;
	error = turn(relay);
	while (!error && !over) {
		struct pollfd wait[2] = { { relay->tcp, (short)(POLLIN | (relay->blocked ? POLLOUT : 0)), 0 },
					  { relay->wake, POLLIN, 0 } };
		uint64_t count;

		pthread_mutex_unlock(&relay->lock);
		poll(wait, 2, TICK_MS);
		if (wait[1].revents)
			(void)!read(relay->wake, &count, sizeof(count));
		pthread_mutex_lock(&relay->lock);
		error = turn(relay);
		over = relay->stopping || relay->state == RELAY_ENDED;
	}
	relay->resumed = relay->stream.resumed;
	vg_durable_detach(&relay->stream);
	pthread_mutex_unlock(&relay->lock);
	if (over || error == -ESTALE || error == -EPROTO) /* the other side need not wait for another connection */
		say_farewell(relay);
	return over ? -ECANCELED : error;
}

/* ---- the thread ---- */

static void finish(struct relay *relay, const char *text)
{
	pthread_mutex_lock(&relay->lock);
	end_session(relay, text, strlen(text));
	if (!relay->stopping)
		fprintf(stderr, "link: %s\n", relay->text);
	pthread_cond_broadcast(&relay->changed);
	pthread_mutex_unlock(&relay->lock);
	vg_lane_close(relay->lane);
}

static const char *describe(int error)
{
	return error == -EACCES	   ? "the other host refuses this host's certificate" :
	       error == -EPIPE	   ? "the other host has ended the session" :
	       error == -EPROTO	   ? "the other host says what it must not" :
	       error == -ESTALE	   ? "the other host has no such session any more" :
	       error == -ETIMEDOUT ? "the other host was silent for too long" :
				     "the connection was cut";
}

void *relay_run(void *argument)
{
	struct relay *relay = argument;
	char text[VG_LINK_TEXT + 1] = "", cut[VG_LINK_TEXT + 1] = "";
	uint64_t first = vg_now_ms() + FIRST_MS, until = 0, pause = PAUSE_MS;
	bool over = false;
	int error = 0;

	for (;;) {
		error = connect_link(relay, cut, text, sizeof(text));
		if (!error) {
			error = serve(relay);
			snprintf(cut, sizeof(cut), "%s", describe(error));
			over = error == -EACCES;
			if (relay->resumed) { /* else it was no connection yet, and the time runs on */
				until = vg_now_ms() + relay->grace_ms;
				pause = PAUSE_MS;
			}
		} else {
			snprintf(cut, sizeof(cut), "%s", text);
		}
		disconnect(relay);
		/* a host that is busy hangs up; else the first connection is tried once, and what breaks the protocol never again */
		if (over || error == -ECANCELED || error == -EPROTO || error == -ESTALE || error == -EPIPE)
			break;
		if (vg_now_ms() >= (until ? until : error == -ECONNRESET ? first : 0))
			break;
		if (relay_wait(relay, -1, 0, vg_now_ms() + pause) == -ECANCELED)
			break;
		pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
	}
	relay_hang_up(relay);
	finish(relay, cut);
	return NULL;
}
