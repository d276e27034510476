/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker says of its guest, and a session to its server. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util.h"
#include "worker.h"

/* Never waits: the keeper reads it, and bounds what a guest can cause; see keeper/log.c. */
static bool say(const char *line, int length)
{
	return write(STDERR_FILENO, line, (size_t)length) == length;
}

void vg_log(struct vg_server *server, const char *format, ...)
{
	char line[512];
	va_list arguments;
	int length = snprintf(line, sizeof(line), "worker: %lu lines left out\n", (unsigned long)server->left_out);

	if (server->left_out && say(line, length))
		server->left_out = 0;
	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (!say(line, length < (int)sizeof(line) ? length : (int)sizeof(line) - 1))
		server->left_out++;
}

void vg_report_violation(struct vg_server *server, uint32_t lane, bool ring, const char *text)
{
	struct vg_stats *stats = server->stats;

	snprintf(stats->violation, sizeof(stats->violation), "lane %u (%s): %s", lane, ring ? "ring" : "serial", text);
	vg_store64(&stats->violations, vg_load64(&stats->violations) + 1);
	vg_log(server, "worker: protocol violation: lane %u (%s): %s\n", lane, ring ? "ring" : "serial", text);
}

int vg_session_tell(int socket, uint32_t kind, const void *body, size_t length)
{
	struct vg_message head = { VG_MESSAGE_MAGIC, 0, kind, (uint32_t)length };
	struct iovec pieces[2] = { { &head, sizeof(head) }, { (void *)body, length } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };

	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

void vg_violation(struct vg_lane *lane, const char *text)
{
	if (lane->server)
		vg_report_violation(lane->server, lane->number, lane->ring, text);
	else
		vg_session_tell(lane->socket, VG_SESSION_VIOLATION, text, strlen(text) + 1);
}
