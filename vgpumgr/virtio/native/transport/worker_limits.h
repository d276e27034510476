/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of a VM, over all of its sessions: counted in a table that the server makes and all sessions map, a row for
 * each lane. What a session holds stands in its own row only, so that the end of a session, in the midst of a charge
 * too, needs no recount: the server clears the row. docs/limits.md says what each limit means.
 */
#ifndef VG_WORKER_LIMITS_H
#define VG_WORKER_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

#include "stats.h"

/* What is not limited; no limit is as large. */
#define VG_UNLIMITED UINT64_MAX

/* The worker's option: --limits=device-memory:1073741824,contexts:16; what is not named has none. */
#define VG_OPTION_LIMITS "--limits="

struct vg_limit_row {
	_Alignas(64) vg_word64 asked[VG_LIMITS_HELD]; /* by charges that are being decided */
	vg_word64 held[VG_LIMITS_HELD];
};

/* The lanes'; those of processes that do not end though their lane has another; and what has no session of its own any more. */
enum { VG_LIMIT_KEPT_ROW = VG_LANE_TABLE + VG_STUCK_MAX, VG_LIMIT_ROWS };

struct vg_limit_table {
	vg_word64 device_memory;        /* this limit changes while sessions run; the server knows it by itself */
	vg_word64 due_ns[VG_LIMITS];    /* of a rate: when all that has been taken of it is paid */
	vg_word64 waited_ns[VG_LIMITS]; /* of a rate: for so long calls have been held up */
	vg_word64 refused[VG_LIMITS];
	struct vg_limit_row row[VG_LIMIT_ROWS];
};

/* Reads the option. -EINVAL: it cannot be understood, and nothing may run as if it were not there. */
int vg_limits_read(int argc, char **argv);
uint64_t vg_limit(enum vg_limit what);

/* The server: makes the table and returns its descriptor, or a negative errno. */
int vg_limits_make(void);
/* A session: maps it. From vg_limits_use() on, charges are the lane's. */
int vg_limits_map(int fd);
void vg_limits_use(uint32_t lane);

/* A session's charge, before the driver is asked; false: it would exceed the limit, and nothing has changed. */
bool vg_charge(enum vg_limit what, uint64_t amount);
/* The same for a caller that tries again: a refusal is not counted. */
bool vg_charge_quietly(enum vg_limit what, uint64_t amount);
void vg_refund(enum vg_limit what, uint64_t amount);
/* All that the VM holds. */
uint64_t vg_limit_used(enum vg_limit what);

/* Whether calls or bytes a second are limited: then each call is told, and waits for its turn unless `closing`. */
extern bool vg_rated;
void vg_rate(size_t bytes, bool (*closing)(const void *), const void *argument);
/* The lane has ended: what it has not paid yet is the VM's. */
void vg_rate_end(void);

/* The server: a session has ended, so its row is cleared; one does not end, so its row moves and the lane's is free. */
void vg_limits_drop(uint32_t row);
void vg_limits_move(uint32_t lane, uint32_t row);
/* Device memory that others still use after its session has given it back, or has ended. */
void vg_limits_keep(uint64_t bytes);
void vg_limits_release(uint64_t bytes);
void vg_limits_add(uint32_t row, uint64_t bytes);
/*
 * Another limit for device memory, at once for all sessions. -EBUSY: more is held, and nothing has changed; -EINVAL: there
 * was none, or it cannot be one.
 */
int vg_limits_change_memory(uint64_t bytes);
/* Copies limits and use to the page that the keeper reads. */
void vg_limits_publish(struct vg_stats *stats);

#endif
