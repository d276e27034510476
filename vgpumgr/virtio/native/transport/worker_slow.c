/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog. Each thread of a session says which call it executes; the server looks now and then, and names those that
 * last. A kernel may well run for hours: a session ends for it only where the administrator has set a limit.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util.h"
#include "worker.h"

enum { LOOK_MS = 250, SECOND_MS = 1000 };

/* ---- in a session ---- */

static _Thread_local vg_word64 *mine;
static _Thread_local uint32_t count;

void vg_watch_begin(struct vg_lane *lane, uint32_t op)
{
	static struct vg_watched unwatched; /* of threads that find no row */

	if (!mine) {
		unsigned number = lane->watched ? atomic_fetch_add(&lane->threads, 1) : VG_WATCHED_THREADS;

		mine = number < VG_WATCHED_THREADS ? &lane->watched[number].running : &unwatched.running;
	}
	atomic_store_explicit(mine, (uint64_t)++count << 32 | (op + 1), memory_order_relaxed);
}

void vg_watch_end(void)
{
	atomic_store_explicit(mine, 0, memory_order_relaxed);
}

uint64_t vg_watch_pause(void)
{
	return mine ? atomic_exchange_explicit(mine, 0, memory_order_relaxed) : 0;
}

void vg_watch_resume(uint64_t paused)
{
	if (paused)
		atomic_store_explicit(mine, (uint64_t)++count << 32 | (uint32_t)paused, memory_order_relaxed);
}

/* ---- in the server ---- */

int vg_watch_open(struct vg_server *server)
{
	void *memory;

	server->watch_fd = memfd_create("vgpumgr-watch", MFD_CLOEXEC);
	if (server->watch_fd < 0 || ftruncate(server->watch_fd, sizeof(struct vg_watch)))
		return -errno;
	memory = mmap(NULL, sizeof(struct vg_watch), PROT_READ | PROT_WRITE, MAP_SHARED, server->watch_fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	server->watch = memory;
	return 0;
}

static const char *name_of(const struct vg_server *server, uint32_t op)
{
	const char *name = server->ops->name ? server->ops->name(op) : NULL;

	return name ? name : "a call";
}

/* The thread that has been at one call for longest; NULL: none executes one. */
static struct vg_seen *find_longest(struct vg_server *server, unsigned lane, uint64_t now)
{
	struct vg_seen *longest = NULL;

	for (unsigned i = 0; i < VG_WATCHED_THREADS; i++) {
		uint64_t running = vg_load64(&server->watch->thread[lane][i].running);
		struct vg_seen *seen = &server->seen[lane][i];

		if (running != seen->running)
			*seen = (struct vg_seen){ .running = running, .since_ms = now };
		if (running && (!longest || seen->since_ms < longest->since_ms))
			longest = seen;
	}
	return longest;
}

static void report(struct vg_server *server, const struct vg_entry *entry, struct vg_seen *seen, uint64_t now,
		   struct vg_slow_stats *row)
{
	uint32_t op = (uint32_t)seen->running - 1;

	if (row) {
		snprintf(row->name, sizeof(row->name), "%s", name_of(server, op));
		vg_store32(&row->op, op);
		vg_store64(&row->since_s, (uint64_t)time(NULL) - (now - seen->since_ms) / SECOND_MS);
		vg_store32(&row->lane, entry->number);
	}
	if (!seen->named)
		vg_log(server, "worker: lane %u (%s, %s): %s lasts for %u s\n", entry->number,
		       entry->ring ? "ring" : "serial", entry->name, name_of(server, op), server->warn_s);
	seen->named = true;
}

/* The lane closes: its session has its time to end, then it is killed. */
static void end(struct vg_server *server, struct vg_entry *entry, const struct vg_seen *seen)
{
	vg_log(server, "worker: lane %u (%s, %s): %s lasts for %u s: its session ends\n", entry->number,
	       entry->ring ? "ring" : "serial", entry->name, name_of(server, (uint32_t)seen->running - 1),
	       server->end_s);
	entry->session.overdue = true;
	vg_store64(&server->stats->health.overdue, vg_load64(&server->stats->health.overdue) + 1);
	vg_entry_close(entry);
}

void vg_watch_look(struct vg_server *server)
{
	struct vg_slow_stats *rows = server->stats->health.slow;
	uint64_t now = vg_now_ms(), lasts;
	unsigned next = 0;

	if (now < server->watch_ms)
		return;
	server->watch_ms = now + LOOK_MS;
	for (unsigned i = 1; i < VG_LANE_TABLE; i++) {
		struct vg_entry *entry = &server->entry[i];
		struct vg_seen *seen = entry->state == LANE_OPEN ? find_longest(server, i, now) : NULL;

		if (!seen)
			continue;
		lasts = now - seen->since_ms;
		if (server->warn_s && lasts >= (uint64_t)server->warn_s * SECOND_MS) {
			report(server, entry, seen, now, next < VG_SLOW_MAX ? &rows[next] : NULL);
			next++;
		}
		if (server->end_s && lasts >= (uint64_t)server->end_s * SECOND_MS)
			end(server, entry, seen);
	}
	for (; next < VG_SLOW_MAX; next++)
		vg_store32(&rows[next].lane, 0);
}
