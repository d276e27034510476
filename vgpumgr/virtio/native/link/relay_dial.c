/* SPDX-License-Identifier: Apache-2.0 */
/* The relay has no network: vgpumgr-dial connects, and hands the socket over. See docs/link-protocol.md, "The dialer". */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "../transport/util.h"
#include "relay_parts.h"

int relay_wait(struct relay *relay, int fd, short events, uint64_t until_ms)
{
	for (;;) {
		struct pollfd wait[2] = { { fd, events, 0 }, { relay->wake, POLLIN, 0 } };
		uint64_t now = vg_now_ms(), count;
		bool stopping;

		pthread_mutex_lock(&relay->lock);
		stopping = relay->stopping;
		pthread_mutex_unlock(&relay->lock);
		if (stopping)
			return -ECANCELED;
		if (now >= until_ms)
			return -ETIMEDOUT;
		poll(wait, 2, until_ms - now < 1000 ? (int)(until_ms - now) : 1000);
		if (wait[1].revents)
			(void)!read(relay->wake, &count, sizeof(count));
		if (fd >= 0 && wait[0].revents)
			return 0;
	}
}

void relay_hang_up(struct relay *relay)
{
	vg_close_fd(&relay->dialer);
	vg_close_fd(&relay->came);
	relay->lines_filled = 0;
}

/* Bytes, and a descriptor that may have come with them. */
static int receive(struct relay *relay)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec piece = { relay->lines + relay->lines_filled, sizeof(relay->lines) - relay->lines_filled };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.space,
				  .msg_controllen = sizeof(control.space) };
	ssize_t n = piece.iov_len ? recvmsg(relay->dialer, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) : 0;
	struct cmsghdr *head;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		vg_close_fd(&relay->came);
		memcpy(&relay->came, CMSG_DATA(head), sizeof(int));
	}
	relay->lines_filled += (size_t)n;
	return 0;
}

/* Without its end; false: not all of it is there. */
static bool take_line(struct relay *relay, char *line, size_t size)
{
	char *end = memchr(relay->lines, '\n', relay->lines_filled);
	size_t length;

	if (!end)
		return false;
	length = (size_t)(end - relay->lines);
	vg_clean_text(line, size, relay->lines, length);
	relay->lines_filled -= length + 1;
	memmove(relay->lines, end + 1, relay->lines_filled);
	return true;
}

/* 1: it takes longer. */
static int obey(struct relay *relay, const char *line, char *text, size_t size)
{
	if (!strncmp(line, "wait ", 5))
		return 1;
	if (!strcmp(line, "ok") && relay->came >= 0) {
		relay->tcp = relay->came;
		relay->came = -1;
		return 0;
	}
	snprintf(text, size, "%s", strncmp(line, "error ", 6) ? "the dialer answers what it must not" : line + 6);
	return -EHOSTUNREACH;
}

static int await_answer(struct relay *relay, char *text, size_t size)
{
	char line[VG_LINK_TEXT + 1];

	for (;;) {
		int error = 0;

		while (take_line(relay, line, sizeof(line))) {
			error = obey(relay, line, text, size);
			if (error <= 0)
				return error;
		}
		error = relay_wait(relay, relay->dialer, POLLIN, UINT64_MAX);
		if (!error)
			error = receive(relay);
		if (!error)
			continue;
		if (error != -ECANCELED)
			snprintf(text, size, "the dialer has ended");
		relay_hang_up(relay);
		return error;
	}
}

int relay_dial(struct relay *relay, const char *why, char *text, size_t size)
{
	char path[512], request[320];
	bool known = relay->dialer >= 0;

	snprintf(path, sizeof(path), "%s/dial.sock", relay->directory);
	if (!known)
		relay->dialer = vg_connect(path);
	if (relay->dialer < 0) {
		snprintf(text, size, "the dialer of this VM does not run: %s", strerror(-relay->dialer));
		return -EHOSTUNREACH;
	}
	if (known)
		snprintf(request, sizeof(request), "again %s\n", why);
	else
		snprintf(request, sizeof(request), "new %u %s\n", relay->peer.pid, relay->peer.name);
	if (vg_send_all(relay->dialer, request, strlen(request))) {
		relay_hang_up(relay);
		snprintf(text, size, "the dialer has ended");
		return -EHOSTUNREACH;
	}
	return await_answer(relay, text, size);
}
