/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of vgpumgr-link: a listener, which is root's and reads nothing from the network but preambles, and a process for
 * each session, which has dropped all rights and is a client of a channel of this host as a guest's process is.
 */
#ifndef VG_LINK_H
#define VG_LINK_H

#include <sys/types.h>

#include "message.h"
#include "tls.h"

enum { LINK_HOSTS = 256 };

/* What the listener and a session's process say to each other, with a connection or without. */
enum link_note_kind {
	LINK_CONNECTION = 1,     /* to the process: another connection of its session */
	LINK_HOST,               /* to the listener: whose it is */
	LINK_WELCOME,            /* to the process: the host may have one more */
	LINK_FULL,               /* to the process: it may not */
};
struct link_note {
	uint32_t kind;
	char host[65];
};

/* What a session's process has from its beginning. */
struct link_start {
	int listener;            /* struct link_note, each a message */
	int connection;
	int broker;              /* negative: the errno of why not */
	unsigned grace_ms;
	bool quiet;              /* strangers have filled enough of the log */
	SSL_CTX *identity;
	const struct vg_link_trust *trust;
};

/* link_session.c: serves one session, in a process that may do nothing else any more. */
_Noreturn void link_serve(const struct link_start *start);

/* link_interface.c: what can be asked for over a link. */
extern const struct vg_interface *const link_interface;
/* Whether an operation hands memory to other processes: they are not told apart at this end. */
bool link_shares(uint32_t op);

#endif
