/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's relays, without processes: each is its end of the socket. What a relay is told is checked. The agent is linked
 * with --wrap of posix_spawn, posix_spawn_file_actions_adddup2, kill, waitpid and getsockopt, which says who a client is.
 */
#ifndef TEST_RELAYS_H
#define TEST_RELAYS_H

#include <sys/types.h>

/* One of them reads its job, says something, ends, or ends because it was killed. */
void relays_move(void);
/* All that were killed end, the others read their jobs. */
void relays_end(void);
/* Waits for a child of the program itself; false if its status is there. */
int relays_wait_for(pid_t pid, int *status);

#endif
