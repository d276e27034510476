/* SPDX-License-Identifier: Apache-2.0 */
/* A session as its dialer has it: its state, and what it is told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "../transport/util.h"
#include "dial_parts.h"

struct dialer dialer = { .lock = PTHREAD_MUTEX_INITIALIZER, .asking = PTHREAD_MUTEX_INITIALIZER, .broker = -1 };

void dial_note(struct dial_session *session, enum dial_state state, const char *text)
{
	pthread_mutex_lock(&dialer.lock);
	if (session->state != state)
		session->since_s = (uint64_t)time(NULL);
	session->state = state;
	snprintf(session->text, sizeof(session->text), "%s", text);
	pthread_mutex_unlock(&dialer.lock);
}

bool dial_is_gone(const struct dial_session *session)
{
	char byte;
	ssize_t n = recv(session->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

int dial_say(const struct dial_session *session, const char *word, const char *text)
{
	char line[DIAL_TEXT + 16];

	snprintf(line, sizeof(line), *text ? "%s %s\n" : "%s%s\n", word, text);
	return vg_send_all(session->fd, line, strlen(line));
}
