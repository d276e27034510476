/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker's calls need of the transport beside answers, for programs without one: to be included once. */
#ifndef TEST_NO_TRANSPORT_H
#define TEST_NO_TRANSPORT_H

#include <transport.h>

bool vg_lane_closing(const struct vg_lane *lane)
{
	(void)lane;
	return false;
}

/* There is none: several lanes share a process here, and a session's window is its process's. tests/sanitize has one. */
uint8_t *vg_lane_window(const struct vg_lane *lane, size_t *size)
{
	(void)lane;
	*size = 0;
	return NULL;
}

void vg_lane_account(struct vg_lane *lane, uint64_t bytes)
{
	(void)lane, (void)bytes;
}

size_t vg_lane_uses(const struct vg_lane *lane, struct vg_lane_use *uses, size_t most)
{
	(void)lane;
	for (size_t i = 0; i < most && i < 2; i++)
		uses[i] = (struct vg_lane_use){ 100 + i, 4096 };
	return most < 2 ? most : 2;
}

void vg_watch_begin(struct vg_lane *lane, uint32_t op)
{
	(void)lane, (void)op;
}

uint64_t vg_watch_pause(void)
{
	return 0;
}

void vg_watch_resume(uint64_t paused)
{
	(void)paused;
}

void vg_watch_end(void)
{
}

void vg_lane_refused(struct vg_lane *lane, const char *name, size_t length)
{
	(void)lane, (void)name, (void)length;
}

void vg_lane_output(struct vg_lane *lane, bool waits)
{
	(void)lane;
	(void)waits;
}

#endif
