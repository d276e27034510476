/* SPDX-License-Identifier: Apache-2.0 */
/* What goes out on the serial stream: whole messages, from any thread. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "worker.h"

enum {
	WRITE_LIMIT_MS = 10000,  /* a guest that reads nothing for so long has hung */
	CREDIT_STEP = 128 << 10,
};

static int write_some(struct vg_server *server, struct iovec *pieces, int count)
{
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
	struct pollfd wait = { .fd = server->serial, .events = POLLOUT };
	ssize_t n = sendmsg(server->serial, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n >= 0)
		return (int)n;
	if (errno != EAGAIN && errno != EINTR)
		return -errno;
	return poll(&wait, 1, WRITE_LIMIT_MS) == 0 ? -ETIMEDOUT : 0;
}

static int write_all(struct vg_server *server, struct iovec *pieces, int count)
{
	while (count) {
		int n = write_some(server, pieces, count);

		if (n < 0)
			return n;
		while (count && (size_t)n >= pieces->iov_len) {
			n -= (int)pieces->iov_len;
			pieces++;
			count--;
		}
		if (count) {
			pieces->iov_base = (uint8_t *)pieces->iov_base + n;
			pieces->iov_len -= (size_t)n;
		}
	}
	return 0;
}

int vg_serial_write(struct vg_server *server, const void *bytes, size_t length)
{
	struct iovec piece = { (void *)bytes, length };

	return write_all(server, &piece, 1);
}

int vg_serial_send(struct vg_server *server, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		   const void *b, size_t b_length)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, lane, kind, (uint32_t)(a_length + b_length) };
	struct iovec pieces[3] = {
		{ &message, sizeof(message) },
		{ (void *)a, a_length },
		{ (void *)b, b_length },
	};
	int error = -ECONNRESET;

	pthread_mutex_lock(&server->serial_lock);
	if (server->serial >= 0 && server->synced && !atomic_load(&server->serial_broken)) {
		error = write_all(server, pieces, 3);
		if (error) /* half a message is out: this stream is of no more use; the main thread hangs up */
			atomic_store(&server->serial_broken, true);
	}
	pthread_mutex_unlock(&server->serial_lock);
	return error;
}

void vg_serial_credit(struct vg_lane *lane, uint32_t bytes)
{
	bool empty;

	pthread_mutex_lock(&lane->queue_lock);
	lane->queued -= bytes;
	empty = !lane->queued;
	pthread_mutex_unlock(&lane->queue_lock);
	lane->uncredited += bytes;
	if (lane->uncredited < (empty ? CREDIT_STEP / 4 : CREDIT_STEP))
		return;
	bytes = lane->uncredited;
	lane->uncredited = 0;
	vg_serial_send(lane->server, lane->number, VG_KIND_CREDIT, &bytes, sizeof(bytes), NULL, 0);
}
