/* SPDX-License-Identifier: Apache-2.0 */
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

enum { FDS_MAX = 6 };

int vg_send_all(int fd, const void *data, size_t length)
{
	const uint8_t *at = data;

	while (length) {
		ssize_t n = send(fd, at, length, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EPIPE ? -ECONNRESET : -errno;
		at += n;
		length -= (size_t)n;
	}
	return 0;
}

int vg_recv_all(int fd, void *data, size_t length)
{
	uint8_t *at = data;

	while (length) {
		ssize_t n = recv(fd, at, length, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		at += n;
		length -= (size_t)n;
	}
	return 0;
}

int vg_send_fds(int fd, const void *data, size_t length, const int *fds, unsigned count)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control = { 0 };
	struct iovec piece = { .iov_base = (void *)data, .iov_len = length };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	ssize_t n;

	if (count > FDS_MAX)
		return -EINVAL;
	if (count) {
		message.msg_control = control.space;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);

		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
	}
	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == length ? 0 : vg_send_all(fd, (const char *)data + n, length - (size_t)n);
}

/* More descriptors than asked for are closed: the other side may be anybody. */
static void take_fds(struct msghdr *message, int *fds, unsigned count)
{
	for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		size_t got = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < got; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
			if (i < count && fds[i] < 0)
				fds[i] = fd;
			else
				close(fd);
		}
	}
}

int vg_recv_fds(int fd, void *data, size_t length, int *fds, unsigned count)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec piece = { .iov_base = data, .iov_len = length };
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space),
	};
	ssize_t n;

	for (unsigned i = 0; i < count; i++)
		fds[i] = -1;
	do
		n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n ? -errno : -ECONNRESET;
	take_fds(&message, fds, count);
	return (size_t)n == length ? 0 : vg_recv_all(fd, (char *)data + n, length - (size_t)n);
}

static int unix_address(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	memcpy(address->sun_path, path, strlen(path) + 1);
	return 0;
}

static int connect_with(const char *path, int type)
{
	struct sockaddr_un address;
	int error = unix_address(path, &address);
	VG_FD int fd = error ? -1 : socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (error)
		return error;
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	error = fd;
	fd = -1;
	return error;
}

int vg_connect(const char *path)
{
	return connect_with(path, SOCK_STREAM);
}

int vg_connect_now(const char *path)
{
	int fd = connect_with(path, SOCK_STREAM | SOCK_NONBLOCK);

	if (fd >= 0)
		fcntl(fd, F_SETFL, 0);
	return fd;
}

int vg_connect_messages(const char *path)
{
	return connect_with(path, SOCK_SEQPACKET);
}

int vg_listen(const char *path, unsigned mode)
{
	struct sockaddr_un address;
	int error = unix_address(path, &address);
	VG_FD int fd = error ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (error)
		return error;
	if (fd < 0)
		return -errno;
	unlink(path);
	/* nobody can connect before listen(), so the mode is right by then */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, mode) || listen(fd, 64))
		return -errno;
	error = fd;
	fd = -1;
	return error;
}

uint64_t vg_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void vg_clean_text(char *to, size_t to_size, const char *from, size_t from_size)
{
	size_t i;

	for (i = 0; i + 1 < to_size && i < from_size && from[i]; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[i] = '\0';
}
