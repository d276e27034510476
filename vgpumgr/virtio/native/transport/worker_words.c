/* SPDX-License-Identifier: Apache-2.0 */
/* What a session's process said on its standard error before it crashed: the C library's reason, a sanitizer's report. */
#include <fcntl.h>
#include <stdio.h>

#include "util.h"
#include "worker.h"

enum { LAST = 4096, LINES = 16, LINE = 200 };

int vg_errors_open(int pair[2])
{
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	fcntl(pair[1], F_SETPIPE_SZ, VG_ERRORS_BYTES); /* less, where a user may not have so much */
	return 0;
}

/* The pipe's last bytes. */
static size_t read_last(int fd, char *text)
{
	size_t filled = 0;
	ssize_t n;

	/* a pipe that others still write to has no end: what it holds at once is enough */
	for (size_t all = 0; all < VG_ERRORS_BYTES; all += (size_t)n) {
		if (filled > LAST / 2) {
			memmove(text, text + filled - LAST / 2, LAST / 2);
			filled = LAST / 2;
		}
		n = read(fd, text + filled, LAST - filled);
		if (n <= 0)
			break;
		filled += (size_t)n;
	}
	return filled;
}

void vg_log_text(struct vg_server *server, const char *who, const char *text, size_t length)
{
	char line[LINE];

	for (unsigned i = 0; length && i < LINES; i++) {
		const char *end = memchr(text, '\n', length);
		size_t part = end ? (size_t)(end - text) : length;

		vg_clean_text(line, sizeof(line), text, part);
		if (line[0])
			vg_log(server, "worker: %s said: %s\n", who, line);
		length -= part + (end != NULL);
		text += part + (end != NULL);
	}
}

void vg_last_words(struct vg_server *server, struct vg_session *session, const char *who)
{
	char text[LAST];
	size_t length = session->errors < 0 ? 0 : read_last(session->errors, text);

	vg_log_text(server, who, text, length);
}

void vg_session_forget(struct vg_session *session)
{
	vg_close_fd(&session->socket);
	vg_close_fd(&session->errors);
	vg_close_fd(&session->exports);
}
