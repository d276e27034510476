/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and counts of calls that the guest's libraries refused: a table of a fixed size that all sessions of the worker
 * add to. A guest can fill it, and no more.
 */
#include <ctype.h>

#include "worker.h"

enum { FREE, TAKEN, NAMED };

static bool is_name(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			return false;
	return length > 0 && length < VG_REFUSED_NAME;
}

/* Two sessions may enter one name at the same time: then it stands there twice, and readers add the counts. */
static bool enter(struct vg_refused_stats *row, const char *name, size_t length)
{
	uint32_t state = FREE;

	if (!atomic_compare_exchange_strong(&row->state, &state, TAKEN))
		return false;
	memcpy(row->name, name, length);
	row->name[length] = '\0';
	vg_store32(&row->state, NAMED);
	return true;
}

void vg_lane_refused(struct vg_lane *lane, const char *name, size_t length)
{
	struct vg_health_stats *health = lane->health;

	if (!health)
		return;
	for (unsigned i = 0; i < VG_REFUSED_MAX && is_name(name, length); i++) {
		struct vg_refused_stats *row = &health->refused[i];

		if (enter(row, name, length) ||
		    (vg_load32(&row->state) == NAMED && !strncmp(row->name, name, length) && !row->name[length])) {
			atomic_fetch_add_explicit(&row->count, 1, memory_order_relaxed);
			return;
		}
	}
	atomic_fetch_add_explicit(&health->refused_more, 1, memory_order_relaxed);
}
