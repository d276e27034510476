/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVIDIA's driver asks of the kernel in cuInit(), beside its devices, as seen with 580.159.04 on an H200: drivers of ours
 * that stand in for it ask the same, so that a sandbox in which it would not start is noticed where there is no GPU.
 */
#ifndef VGPUMGR_DRIVER_START_H
#define VGPUMGR_DRIVER_START_H

#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cuda.h>

/* CUDA_SUCCESS, or 304 as the driver answers. */
static inline CUresult start_as_nvidias_driver(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, bound;

	if (sched_get_priority_max(SCHED_RR) < 0 || sched_get_priority_min(SCHED_RR) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* of device nodes that are another user's, as they are in a user namespace: a refusal is borne */
	if (!chmod("", 0666))
		return CUDA_ERROR_OPERATING_SYSTEM;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* what may be left at the name of a socket that is abstract: only "there is none" is borne */
	bound = !unlink("") || errno != ENOENT ? -1 : bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t));
	close(fd);
	return bound ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

#endif
