/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of vgpumgr-relay: the worker of a VM whose GPU is in another host. A session has two threads: the lane's reader,
 * which writes frames into the stream and sends them, and the *link thread*, which dials, receives, and answers.
 */
#ifndef VG_RELAY_H
#define VG_RELAY_H

#include <pthread.h>

#include "message.h"
#include "tls.h"

enum relay_state { RELAY_OPENING, RELAY_OPEN, RELAY_ENDED };

/* A call that the guest waits for. */
struct relay_call {
	bool busy;
	uint32_t sequence, bulk_length;
	uint8_t *bulk;
};

struct relay {
	const char *directory;
	unsigned grace_ms;
	struct vg_lane *lane;
	struct vg_peer peer;
	uint8_t id[VG_LINK_ID];
	pthread_t thread;
	int wake;                /* the link thread, from its waiting */

	pthread_mutex_t lock;    /* of all that follows */
	pthread_cond_t changed;
	struct vg_durable stream;
	struct vg_reader reader;
	enum relay_state state;
	bool stopping;           /* the lane has ended */
	bool broken;             /* the connection: its thread is to notice */
	bool blocked;            /* the connection takes no more now */
	bool half;               /* of a frame: the stream ends with it */
	size_t unsent;           /* of posted frames */
	char text[VG_LINK_TEXT + 1]; /* why it has ended */
	struct relay_call call[VG_LINK_CALLS];
	uint64_t words[VG_OPERATIONS_MAX];
	uint32_t count;
	uint8_t payload[sizeof(struct vg_link_welcome) + VG_PAYLOAD_RING_MAX];

	/* the link thread's own */
	int dialer, tcp;
	SSL *ssl;
	bool resumed;            /* on the last connection both sides went on */
	char lines[512];         /* of the dialer, not yet read */
	size_t lines_filled;
	int came;                /* a descriptor that came with them */
};

/* relay_link.c: the link thread */
void *relay_run(void *relay);
void relay_wake(struct relay *relay);
extern const struct vg_reader_ops relay_reader_ops;
/* relay_dial.c: another connected socket, in relay->tcp. -ECANCELED: the lane ends; else text says why there is none. */
int relay_dial(struct relay *relay, const char *why, char *text, size_t size);
void relay_hang_up(struct relay *relay);
/* Until the descriptor is ready: 0; -ETIMEDOUT; -ECANCELED. */
int relay_wait(struct relay *relay, int fd, short events, uint64_t until_ms);

#endif
