/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's state: any thread may look at it, wake the lane's thread, or close the lane. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker.h"

bool vg_lane_closing(const struct vg_lane *lane)
{
	return atomic_load_explicit(&((struct vg_lane *)lane)->state, memory_order_acquire) == LANE_CLOSING;
}

void vg_lane_account(struct vg_lane *lane, uint64_t memory_bytes)
{
	if (lane->stats)
		vg_store64(&lane->stats->memory_bytes, memory_bytes);
}

void vg_lane_wake(struct vg_lane *lane)
{
	if (!atomic_load(&lane->asleep))
		return;
	atomic_fetch_add(&lane->wake, 1);
	syscall(SYS_futex, &lane->wake, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Any thread. The lane's own notices, closes the session and frees the entry. */
void vg_lane_close(struct vg_lane *lane)
{
	int expected = LANE_OPEN;

	if (!atomic_compare_exchange_strong(&lane->state, &expected, LANE_CLOSING))
		return;
	if (lane->ring)
		vg_store64(&lane->control->life, 0);
	atomic_fetch_add(&lane->wake, 1);
	syscall(SYS_futex, &lane->wake, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void vg_lanes_close(struct vg_server *server, bool ring)
{
	for (unsigned i = 1; i < VG_LANE_TABLE; i++)
		if (server->lane[i] && server->lane[i]->ring == ring)
			vg_lane_close(server->lane[i]);
}
