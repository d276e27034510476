/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter's channels: their keepers' connections, their pages and their bells. Sessions, which a guest may have taken over,
 * write the page and ring the bell: nothing of one channel reaches the account of another, and none is waited for.
 */
#ifndef VG_ARB_CHANNELS_H
#define VG_ARB_CHANNELS_H

#include <poll.h>

#include "../transport/share.h"
#include "policy.h"

enum { CLIENTS = ARB_CHANNELS + 8 };

struct client {
	int fd, bell;            /* -1: none */
	int number;              /* in the policy; ARB_NONE: it has not joined */
	struct vg_share_page *page;
	struct vg_share_account *account;
	uint32_t turn;           /* as the page was last written */
	bool wants, busy, overdue;
	uint64_t overdue_from, named_ns;
	uint64_t bell_until;     /* the end of the time that `rings` counts */
	unsigned rings;
	char name[VG_SHARE_TEXT];
};

struct channels {
	struct arbiter policy;
	struct client client[CLIENTS];
	unsigned joined;
};

uint64_t channels_clock(void);
void channels_init(struct channels *all, enum arb_kind kind);
void channels_accept(struct channels *all, int listener);
/* CLIENTS * 2 places: connections, then bells. */
void channels_wait_for(const struct channels *all, struct pollfd *wait);
/* Serves what poll() found; `wait` NULL: nothing. */
void channels_serve(struct channels *all, const struct pollfd *wait);
/* Reads the pages, decides, and tells the sessions; until when that holds. */
uint64_t channels_decide(struct channels *all);

#endif
