/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has the GPU's next turn: the arbiter's decisions without clock, memory or sockets of their own. Time goes in, decisions
 * come out, so that tests run it in virtual time. Times are nanoseconds of one monotonic clock; docs/adr/0018 has the reasons.
 *
 * A channel *wants* when a session of it waits for a turn, and is *busy* while it may have work on the GPU. One channel has
 * the turn. Its time is charged from the grant until it has drained. When others wait, a turn ends after ARB_TURN_NS; its
 * holder then starts no more work, and the next turn begins when it has drained. A long kernel makes debt that is worked off.
 */
#ifndef VG_ARB_POLICY_H
#define VG_ARB_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "../transport/share.h"

enum arb_kind { ARB_FIXED, ARB_BURST };

enum { ARB_CHANNELS = 64, ARB_NONE = -1, ARB_WHOLE = VG_SHARE_WHOLE, ARB_LEAST = VG_SHARE_LEAST };

#define ARB_TURN_NS 4000000ull      /* of a turn, while others wait */
/*
 * A holder without work may keep its turn while others wait, so that it can launch again after having waited for its kernels: if
 * its pauses usually are short enough for that. One that is behind the others by its weight may keep it for longer.
 */
#define ARB_GRACE_AHEAD_NS 500000ull
#define ARB_GRACE_NS 1500000ull      /* or this part of what it has worked at once, */
enum { ARB_GRACE_PART = 8 };
#define ARB_GRACE_MOST_NS 4000000ull /* but never longer */
#define ARB_PAUSE_NS 200000ull       /* of a channel whose pauses are not known yet */
#define ARB_PATIENCE_NS 1000000000ull /* a holder that has not drained by then is overdue: others go on beside it */
#define ARB_CREDIT_NS 20000000ull  /* who comes back after a pause has so much of what it missed, at most */
#define ARB_WINDOW_NS 100000000ull  /* of a hard cap: what is not used of it is lost after this time */
#define ARB_STARVE_NS 500000000ull  /* who has waited for so long comes next, whatever its class */
#define ARB_OWED_NS 1000000000ull   /* what a hard cap could not use because others had the GPU is kept for so long */

/* Of those that wait, a higher class comes first while it is within its part of the time. */
enum arb_class { ARB_LOW = VG_SHARE_LOW, ARB_NORMAL = VG_SHARE_NORMAL, ARB_HIGH = VG_SHARE_HIGH };

/* What the sessions of a channel may do. */
enum arb_turn { ARB_CLOSED, ARB_OPEN, ARB_CONTENDED };

struct arb_channel {
	bool used, wants, busy;
	bool overdue;            /* it had its turn, did not drain, and others go on */
	enum arb_turn turn;      /* the decision */
	uint32_t weight;         /* millionths of the GPU's time, ARB_LEAST to ARB_WHOLE */
	uint64_t virtual_ns;     /* what it was charged, by its weight */
	uint64_t virtual_rest, budget_rest; /* what is less than a nanosecond of these, in parts of the weight, and of the whole */
	uint64_t pause_ns;       /* between the end of its work and more of it, usually */
	uint64_t idle_at;        /* 0: it has or wants some */
	int64_t budget_ns;       /* what it may use of its part of the time now: of a hard cap, and of a class; below 0: debt */
	enum arb_class class;
	bool prior;              /* its class counts: it is within its part of the time */
	uint64_t waits_from;     /* 0: it does not wait for its turn */
	uint64_t used_ns, throttled_ns, turns;
};

struct arbiter {
	enum arb_kind kind;
	uint64_t now, virtual_now;
	int holder;              /* ARB_NONE */
	bool draining;           /* the holder starts no more */
	bool mixed;              /* those with work are of several classes */
	uint64_t granted, drained_from, idle_from, busy_from; /* of the holder; idle_from 0: it is busy */
	uint64_t stretch;        /* how long it was busy before it became idle */
	struct arb_channel channel[ARB_CHANNELS];
};

void arb_init(struct arbiter *a, enum arb_kind kind, uint64_t now);
/* A channel's number; ARB_NONE: there are too many. `weight` is brought into its bounds. */
int arb_join(struct arbiter *a, uint32_t weight, enum arb_class class, uint64_t now);
void arb_leave(struct arbiter *a, int number, uint64_t now);
void arb_weigh(struct arbiter *a, int number, uint32_t weight, enum arb_class class, uint64_t now);
/* What a channel's sessions say now. */
void arb_report(struct arbiter *a, int number, bool wants, bool busy, uint64_t now);
/* Decides, and returns until when that holds if nothing is reported; UINT64_MAX: for ever. */
uint64_t arb_decide(struct arbiter *a, uint64_t now);

#endif
