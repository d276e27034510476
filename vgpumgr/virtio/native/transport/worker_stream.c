/* SPDX-License-Identifier: Apache-2.0 */
/* What goes out on the serial stream: whole messages. The server keeps what the guest does not take yet, within bounds. */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "util.h"
#include "worker.h"

enum {
	STALL_LIMIT_MS = 10000,  /* a guest that reads nothing for so long has hung */
	FULL = 256 << 10,        /* sessions wait */
	BUFFER = 1 << 20,        /* the server's own messages fit beyond that */
};

bool vg_stream_is_full(const struct vg_server *server)
{
	return server->out_filled >= FULL;
}

void vg_stream_flush(struct vg_server *server)
{
	uint64_t now = vg_now_ms();
	ssize_t n;

	if (server->serial < 0 || !server->out_filled) {
		server->out_ms = now;
		return;
	}
	n = send(server->serial, server->serial_out, server->out_filled, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		memmove(server->serial_out, server->serial_out + n, server->out_filled - (size_t)n);
		server->out_filled -= (size_t)n;
		server->out_ms = now;
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		server->serial_broken = true;
	} else if (now - server->out_ms > STALL_LIMIT_MS) {
		server->serial_broken = true;
	}
}

/* Half a message that is out makes the stream useless: the server hangs up. */
static int append(struct vg_server *server, const struct iovec *pieces, int count)
{
	size_t length = 0;

	for (int i = 0; i < count; i++)
		length += pieces[i].iov_len;
	if (!server->serial_out)
		server->serial_out = malloc(BUFFER);
	if (!server->serial_out || length > BUFFER - server->out_filled) {
		server->serial_broken = true;
		return -ENOBUFS;
	}
	if (!server->out_filled)
		server->out_ms = vg_now_ms();
	for (int i = 0; i < count; i++) {
		if (pieces[i].iov_len)
			memcpy(server->serial_out + server->out_filled, pieces[i].iov_base, pieces[i].iov_len);
		server->out_filled += pieces[i].iov_len;
	}
	vg_stream_flush(server);
	return server->serial_broken ? -ECONNRESET : 0;
}

int vg_stream_write(struct vg_server *server, const void *bytes, size_t length)
{
	struct iovec piece = { (void *)bytes, length };

	return append(server, &piece, 1);
}

int vg_stream_send(struct vg_server *server, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		   const void *b, size_t b_length)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, lane, kind, (uint32_t)(a_length + b_length) };
	struct iovec pieces[3] = {
		{ &message, sizeof(message) },
		{ (void *)a, a_length },
		{ (void *)b, b_length },
	};

	if (server->serial < 0 || !server->synced || server->serial_broken)
		return -ECONNRESET;
	return append(server, pieces, 3);
}

int vg_serial_send(struct vg_lane *lane, uint32_t kind, const void *a, size_t a_length, const void *b, size_t b_length)
{
	struct vg_message head = { VG_MESSAGE_MAGIC, lane->number, kind, (uint32_t)(a_length + b_length) };
	struct iovec pieces[3] = {
		{ &head, sizeof(head) },
		{ (void *)a, a_length },
		{ (void *)b, b_length },
	};
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 3 };

	if (lane->server)
		return vg_stream_send(lane->server, lane->number, kind, a, a_length, b, b_length);
	/* the socket keeps message boundaries: threads need no lock */
	while (sendmsg(lane->socket, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}
