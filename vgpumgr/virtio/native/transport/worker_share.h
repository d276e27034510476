/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of a channel's share (share.h): what its sessions say to the arbiter, and how they wait for a turn. */
#ifndef VG_WORKER_SHARE_H
#define VG_WORKER_SHARE_H

#include <stdbool.h>

#include "share.h"

/* Of a session: NULL unless the channel has a share. */
extern struct vg_share_page *vg_share_page;
extern struct vg_share_row *vg_share_row;

/* Reads the worker's option, or a session's, and maps the page. Negative errno: it cannot. Without the option: 0, and nothing. */
int vg_share_open(int argc, char **argv);
/* The descriptors of page and bell, for a session; false: there is no share. */
bool vg_share_fds(int *page, int *bell);
/* A session: from now on it is the lane's. */
void vg_share_use(uint32_t lane);
/* The server: the lane's session has ended, or is left to itself. */
void vg_share_drop(uint32_t lane);
/* Has the arbiter read the page. Never waits. */
void vg_share_ring(void);
/* Sleeps while the page's `turn` is `turn`, for some time at most. */
void vg_share_sleep(uint32_t turn, uint64_t ns);
/* Waits until work may be launched; false: `closing` said so. */
bool vg_share_wait(bool (*closing)(const void *), const void *argument);

#endif
