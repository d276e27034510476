/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel's share of the GPU's time, between sessions, keeper and arbiter (docs/adr/0018-shares-by-turns.md). The keeper makes
 * a page and a bell for each worker, and hands them to the worker and to the arbiter. All sessions of the VM write the page, so
 * that the arbiter takes from it only which lanes ask for a turn and which have work, and nothing of another channel.
 */
#ifndef VG_SHARE_H
#define VG_SHARE_H

#include "wire.h"

/* One for each lane, written by its session. */
struct vg_share_row {
	_Alignas(64) vg_word64 work; /* low half: launches that are being made now; high half: how many were begun */
	vg_word32 wants;         /* threads that wait for a turn */
	vg_word32 busy;          /* not 0: there may be work on the GPU */
};

/* Of `turn`, a futex: whether work may be launched; if others wait, a session also says soon when it has no work left. */
enum vg_turn { VG_TURN_CLOSED, VG_TURN_OPEN, VG_TURN_CONTENDED };

struct vg_share_page {
	vg_word32 turn;
	struct vg_share_row row[VG_LANE_TABLE];
};
enum { VG_SHARE_SIZE = 4096 };
_Static_assert(sizeof(struct vg_share_page) <= VG_SHARE_SIZE, "fits its memory");

/* What a channel has had; the arbiter writes it, the keeper reads it. Times are nanoseconds. */
struct vg_share_account {
	vg_word64 used_ns, throttled_ns, turns;
	vg_word64 overdue_ns;    /* for so long it has not given back its turn; 0: it is not late */
	vg_word32 compute, fixed;
};
enum { VG_ACCOUNT_SIZE = 4096 };

/* From the keeper to the arbiter, on a socket that keeps message boundaries. */
enum vg_share_what {
	VG_SHARE_JOIN = 1,       /* name, compute, fixed, priority; once, before all else */
	VG_SHARE_PAGE,           /* with the page and the bell of a new worker */
	VG_SHARE_WEIGH,          /* compute, priority */
	VG_SHARE_PING,           /* whether an arbiter is there: it answers WELCOME */
	VG_SHARE_WELCOME = 64,   /* the answer to JOIN, with the memory of the account */
	VG_SHARE_REFUSED,        /* or this one, with the reason in `text` */
};

enum { VG_SHARE_TEXT = 96 };
enum { VG_SHARE_LOW, VG_SHARE_NORMAL, VG_SHARE_HIGH };
/* Of `compute`, millionths of the GPU's time: all of it, the least, and one percent. */
enum { VG_SHARE_WHOLE = 1000000, VG_SHARE_LEAST = 10000, VG_SHARE_PERCENT = 10000 };

struct vg_share_message {
	uint32_t what;
	uint32_t compute;        /* millionths */
	uint32_t fixed;          /* not 0: a hard cap */
	uint32_t priority;       /* VG_SHARE_LOW and so on */
	char text[VG_SHARE_TEXT];
};

/* The worker's option: --channel-share=page:7,bell:8; a session's: --session-share=page:9,bell:10 */
#define VG_OPTION_SHARE "--channel-share="
#define VG_OPTION_SESSION_SHARE "--session-share="

#endif
