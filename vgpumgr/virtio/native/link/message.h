/* SPDX-License-Identifier: Apache-2.0 */
/* What the relay and vgpumgr-link say to each other on a durable stream: docs/link-protocol.md, "Messages". */
#ifndef VG_LINK_MESSAGE_H
#define VG_LINK_MESSAGE_H

#include "../transport.h"
#include "stream.h"

#define VG_LINK_ALPN "vgpumgr-link/1"

enum { VG_LINK_VERSION = 1, VG_LINK_ID = 16, VG_LINK_TEXT = 200, VG_LINK_CALLS = 64, VG_LINK_BULK_MAX = 64 << 20 };

/* In clear, before TLS: which session the connection is for. */
struct vg_link_preamble {
	char magic[8];
	uint32_t version, zero;
	uint8_t id[VG_LINK_ID];
};
_Static_assert(sizeof(struct vg_link_preamble) == 32, "wire format");
#define VG_LINK_MAGIC "VGPULINK" /* 8 bytes */

enum vg_link_kind {
	VG_LINK_HELLO = 1,   /* from the relay: struct vg_link_hello */
	VG_LINK_WELCOME,     /* to it: struct vg_link_welcome, and words of operations */
	VG_LINK_REFUSED,     /* to it: a text */
	VG_LINK_FRAME,       /* from it */
	VG_LINK_REPLY,       /* to it */
	VG_LINK_END,         /* a text, which may be empty */
};

enum { VG_LINK_WANTS_REPLY = 1, VG_LINK_BULK_IN = 2, VG_LINK_BULK_OUT = 4, VG_LINK_OUTPUT = 8 };

struct vg_link_message {
	uint32_t kind;
	uint32_t length;     /* of the payload, which follows; then comes the bulk */
	uint32_t op;         /* of a reply: its status */
	uint32_t sequence;
	uint32_t flags;
	uint32_t bulk;       /* bytes that follow the payload */
	uint32_t wish;       /* of a frame with BULK_OUT: the most that the reply may bring */
	uint32_t zero;
};
_Static_assert(sizeof(struct vg_link_message) == 32, "wire format");

struct vg_link_hello {
	uint32_t version, pid;
	uint32_t bulk_max;   /* of the process's channel */
	uint32_t zero;
	char name[32], api_version[32];
};
_Static_assert(sizeof(struct vg_link_hello) == 80, "wire format");

struct vg_link_welcome {
	uint32_t bulk_max;
	uint32_t count;      /* of words, 8 bytes each, in rising order of ids */
	char device[64], api_version[32];
};
_Static_assert(sizeof(struct vg_link_welcome) == 104, "wire format");

/* Where a message's parts go as they come. Both calls may refuse it: a negative errno, which vg_reader_read() returns. */
struct vg_reader_ops {
	/* The head has been checked by itself. -EAGAIN: later. */
	int (*begin)(void *context, const struct vg_link_message *message, uint8_t **payload, uint8_t **bulk);
	int (*end)(void *context, const struct vg_link_message *message);
};

struct vg_reader {
	const struct vg_reader_ops *ops;
	void *context;
	bool relay;              /* reads what is said to the relay; else what it says */
	uint32_t bulk_max;
	struct vg_link_message message;
	bool has_head, begun;
	uint8_t *payload, *bulk;
	size_t filled;           /* of payload and bulk */
};

/* Takes what is there. 0, or what one of ops said; -EPROTO: no message can look like that. */
int vg_reader_read(struct vg_reader *reader, struct vg_durable *stream);

#endif
