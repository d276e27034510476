/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher: the one process of a channel that keeps root's rights. It starts and ends workers and connects to the
 * serial socket of QEMU and to the GPU's arbiter, at the keeper's request, and reads nothing but requests of fixed size. The keeper, which speaks
 * with QEMU, the worker and the control socket's clients, gives its rights away. Each ends with the other.
 */
#ifndef VG_LAUNCHER_H
#define VG_LAUNCHER_H

#include "keeper.h"

enum launch_what {
	LAUNCH_START = 1, /* to the launcher: epoch; descriptors of `enum launch_fd`, as `fds` says */
	LAUNCH_SIGNAL,    /* value: SIGTERM or SIGKILL, to the worker */
	LAUNCH_CONNECT,   /* to the serial socket */
	LAUNCH_ARBITER,   /* to connect to the GPU's arbiter */
	LAUNCH_FINISH,    /* in order: the sockets' names are removed, too */
	LAUNCH_STARTED,   /* to the keeper: value: the worker's pid, or negative errno */
	LAUNCH_UNMAPPED,  /* value: negative errno: its user namespace has no map; it ends by itself */
	LAUNCH_ENDED,     /* value: as waitpid() has it */
	LAUNCH_CONNECTED, /* with the connection, or value: negative errno */
	LAUNCH_JOINED,    /* the same of the arbiter's */
};

struct launch {
	uint32_t what;
	int32_t value;
	uint32_t epoch;
	uint32_t fds;            /* bit i: the next descriptor is launch_fd i */
};

/* Starts the launcher, whose messages go to `log` (-1: stay as they are), and gives up what only it needs. */
int launcher_start(struct keeper *keeper, int log);
/* A request; negative errno if the launcher has gone. */
int launcher_ask(const struct keeper *keeper, enum launch_what what, int value);
/* Starts a worker: its pid, or negative errno. */
pid_t launcher_spawn(struct keeper *keeper, int control);
/* Takes one message that waits; false: there is none. Its descriptor, or -1, is the caller's. */
bool launcher_read(struct keeper *keeper, struct launch *message, int *fd);
/* Has it remove what is in the directory, and waits for its end. */
void launcher_finish(struct keeper *keeper);

#endif
