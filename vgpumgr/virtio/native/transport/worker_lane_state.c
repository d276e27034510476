/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's state: any thread may look at it or close the lane. */
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker.h"

uint8_t *vg_lane_window(const struct vg_lane *lane, size_t *size)
{
	*size = lane->window_size;
	return lane->ring && lane->window_size ? lane->window : NULL;
}

size_t vg_lane_bulk_max(const struct vg_lane *lane)
{
	return lane->ring ? lane->bulk_max : VG_SERIAL_BULK_MAX;
}

void vg_lane_refuse(struct vg_lane *lane, const char *text)
{
	snprintf(lane->refusal, sizeof(lane->refusal), "%s", text);
}

bool vg_lane_closing(const struct vg_lane *lane)
{
	return vg_load32(&lane->words->closing);
}

void vg_lane_account(struct vg_lane *lane, uint64_t memory_bytes)
{
	if (lane->stats)
		vg_store64(&lane->stats->memory_bytes, memory_bytes);
}

size_t vg_lane_uses(const struct vg_lane *lane, struct vg_lane_use *uses, size_t most)
{
	const struct vg_lane_stats *all = lane->stats ? lane->stats - lane->number : NULL; /* one table, by number */
	size_t count = 0;

	for (uint32_t i = 0; all && i < VG_LANE_TABLE && count < most; i++) {
		if (vg_load32(&all[i].used))
			uses[count++] = (struct vg_lane_use){ vg_load32(&all[i].pid), vg_load64(&all[i].memory_bytes) };
	}
	return count;
}

void vg_lane_output(struct vg_lane *lane, bool waits)
{
	atomic_store_explicit(&lane->output, waits, memory_order_relaxed);
}

void vg_words_wake(struct vg_lane_words *words)
{
	atomic_fetch_add(&words->wake, 1);
	syscall(SYS_futex, &words->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void vg_lane_close(struct vg_lane *lane)
{
	if (atomic_exchange(&lane->words->closing, 1))
		return;
	if (lane->control)
		vg_store64(&lane->control->life, 0);
	if (lane->socket >= 0)
		shutdown(lane->socket, SHUT_RD);
	vg_words_wake(lane->words);
}

void vg_lane_clear(struct vg_control *control)
{
	vg_store64(&control->submit_head, 0);
	vg_store64(&control->submit_tail, 0);
	vg_store64(&control->reply_head, 0);
	vg_store64(&control->reply_tail, 0);
	vg_store32(&control->parked, 0);
}

void vg_lane_map(struct vg_lane *lane, void *memory, const struct vg_layout *layout)
{
	struct vg_control *control = vg_lane_at(memory, layout, lane->number);
	uint32_t submit_size = lane->number ? layout->submit_size : VG_CONTROL_RING;
	uint32_t reply_size = lane->number ? layout->reply_size : VG_CONTROL_RING;
	uint8_t *base = (uint8_t *)control + VG_PAGE;

	lane->control = control;
	vg_ring_init(&lane->submit, base, submit_size, &control->submit_head, &control->submit_tail);
	vg_ring_init(&lane->reply, base + submit_size, reply_size, &control->reply_head, &control->reply_tail);
	lane->window = base + submit_size + reply_size;
	lane->window_size = lane->number ? layout->window_size : 0;
	lane->bulk_max = layout->bulk_max;
	lane->released = 0;
}
