/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VG_WORKER_EXPORTS_PASSING_H
#define VG_WORKER_EXPORTS_PASSING_H

#include <sys/types.h>

/* worker_exports_pass.c: sendmsg() and recvmsg(), with a descriptor or (-1) without. */
ssize_t vg_exports_send(int socket, const void *data, size_t length, int file, int flags);
ssize_t vg_exports_receive(int socket, void *data, size_t length, int *file, int flags);

#endif
