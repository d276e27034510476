/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors and sockets: close-on-exec, EINTR and short transfers are dealt with here, once. */
#ifndef VG_UTIL_H
#define VG_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

static inline void vg_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
#define VG_FD __attribute__((cleanup(vg_close_fd)))

/* All of it or a negative errno; -ECONNRESET at the end of the stream. Never a signal. */
int vg_send_all(int fd, const void *data, size_t length);
int vg_recv_all(int fd, void *data, size_t length);
/* One message with descriptors, which stay the caller's. */
int vg_send_fds(int fd, const void *data, size_t length, const int *fds, unsigned count);
/* Exactly length bytes, and up to count descriptors; missing ones become -1. */
int vg_recv_fds(int fd, void *data, size_t length, int *fds, unsigned count);
/* Stream sockets at a path. */
int vg_connect(const char *path);
/* The same, for one who waits for nobody: -EAGAIN where the listener is busy. */
int vg_connect_now(const char *path);
/* A socket that keeps message boundaries. */
int vg_connect_messages(const char *path);
int vg_listen(const char *path, unsigned mode);
uint64_t vg_now_ms(void);
/* Copies text that an enemy wrote: terminated, printable ASCII only. */
void vg_clean_text(char *to, size_t to_size, const char *from, size_t from_size);

#endif
