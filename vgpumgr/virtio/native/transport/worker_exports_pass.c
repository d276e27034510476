/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a session and the server about what is shared: some have a descriptor with them, at most one. */
#include <string.h>
#include <sys/socket.h>

#include "worker_exports_passing.h"

ssize_t vg_exports_send(int socket, const void *data, size_t length, int file, int flags)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec part = { (void *)data, length };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (file >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.align = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), &file, sizeof(file));
	}
	return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

/* There is space for one: the kernel closes what a message has beyond it. */
ssize_t vg_exports_receive(int socket, void *data, size_t length, int *file, int flags)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { data, length };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = CMSG_LEN(sizeof(int)) };
	ssize_t n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

	*file = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(file, CMSG_DATA(c), sizeof(*file));
	return n;
}
