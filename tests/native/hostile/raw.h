/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest process without our libraries: it takes a lane from the agent as any process may, and then writes what it
 * likes into the ring or the serial stream. Payloads are 64-bit words.
 */
#ifndef TEST_RAW_H
#define TEST_RAW_H

#include "../../../vgpumgr/virtio/native/transport/ring.h"
#include "../../../vgpumgr/virtio/native/transport/util.h"

enum { RAW_WORDS = 512 };

struct raw {
	int socket, fds[VG_AGENT_FDS];
	struct vg_agent_answer answer;
	bool ring, lost;
	uint8_t *memory;
	struct vg_layout layout;
	struct vg_control *control;
	struct vg_ring replies;
	uint64_t head;
	uint32_t sequence;
	uint64_t unpaid;         /* serial: bytes for which no credit has come back */
};

struct raw_reply {
	struct vg_reply_header header;
	uint8_t data[VG_BODY_MAX];
};

/* 0, or what the agent or the host has answered; the answer's text says why. */
int raw_open_as(struct raw *raw, uint32_t version, const char *name);
int raw_open(struct raw *raw);
void raw_close(struct raw *raw);
/* A header as the caller made it, and a payload of its own length. Waits for room; negative once the lane is lost. */
int raw_send(struct raw *raw, const struct vg_frame_header *header, const uint64_t *words, unsigned count);
/* A proper frame; a negative value is an error, else the sequence number. */
int64_t raw_post(struct raw *raw, uint32_t op, uint32_t flags, const uint64_t *words, unsigned count);
/* The next reply, within this time; -ETIMEDOUT, or -ECONNRESET once the lane is lost. */
int raw_next(struct raw *raw, struct raw_reply *reply, unsigned wait_ms);
/* A call and its answer: the status, or a negative error. */
int raw_call(struct raw *raw, uint32_t op, const uint64_t *words, unsigned count);
/* Whether the host ends the lane within this time. */
bool raw_is_ended(struct raw *raw, unsigned wait_ms);
void raw_doorbell(const struct raw *raw);

#endif
