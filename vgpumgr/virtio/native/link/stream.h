/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of bytes each way that outlives its connections: docs/link-protocol.md, "The durable stream". What the other
 * side has not acknowledged is kept, and sent again on the next connection from where the other side has it. Nothing here
 * waits, and nothing knows of TLS: bytes go through struct vg_link_io. A caller with several threads has a lock of its own.
 */
#ifndef VG_LINK_STREAM_H
#define VG_LINK_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	VG_LINK_WINDOW = 4 << 20,     /* bytes each way that are sent and not acknowledged */
	VG_LINK_HEAD = 16,
	VG_LINK_RECORD_MAX = 16384,   /* with its head: what one record of TLS holds */
	VG_LINK_PING_MS = 2000,       /* of silence, then something is said */
	VG_LINK_DEAD_MS = 6000,       /* of silence, then the connection is taken for cut */
};

enum vg_link_record { VG_LINK_RESUME = 1, VG_LINK_DATA, VG_LINK_ACK, VG_LINK_PING };
enum { VG_LINK_AGAIN = 1 };           /* flag of RESUME: the sender has had an earlier connection of this session */

/* In the byte order of the host, which is little-endian on all that this is built for. */
struct vg_link_head {
	uint32_t length;              /* of what follows */
	uint16_t kind, flags;
	uint64_t value;               /* bytes that the sender has taken; of RESUME: that it has received */
};
_Static_assert(sizeof(struct vg_link_head) == VG_LINK_HEAD, "wire format");

/* Bytes that went; 0 where the other side says that it ends for good, which a cut cannot; -EAGAIN; another negative errno. */
struct vg_link_io {
	void *context;
	ssize_t (*read)(void *context, void *to, size_t size);
	ssize_t (*write)(void *context, const void *from, size_t size);
};

struct vg_durable {
	struct vg_link_io io;
	bool connected;
	bool resumed;                 /* the other side has said on this connection how much it has received */
	bool established;             /* it has done so at least once */
	bool again;                   /* there was a connection before this one */
	bool says_taken, says_ping;
	uint8_t *out, *in;            /* rings */
	uint64_t written, sent, acknowledged; /* of what goes out: [acknowledged, written) is kept */
	uint64_t received, taken, told;
	uint64_t heard_ms, said_ms;
	struct vg_link_head head;     /* of the record that comes in */
	size_t head_filled, body_left;
	uint8_t staged[VG_LINK_RECORD_MAX];
	size_t staged_length, staged_sent;
};

int vg_durable_init(struct vg_durable *stream);
void vg_durable_free(struct vg_durable *stream);
/* Another connection, in the place of the one before. */
void vg_durable_attach(struct vg_durable *stream, const struct vg_link_io *io, uint64_t now_ms);
void vg_durable_detach(struct vg_durable *stream);

/* As much of it as there is a place for, to be sent. */
size_t vg_durable_write(struct vg_durable *stream, const void *bytes, size_t length);
/* What has come and has not been taken, as far as it lies together. */
size_t vg_durable_peek(const struct vg_durable *stream, const uint8_t **bytes);
void vg_durable_take(struct vg_durable *stream, size_t length);

/*
 * Sends what is there: 0, or -EAGAIN where the connection takes no more now. Receives: 0 when nothing more is there now, 1
 * when there may be. Both: -ECONNRESET if the connection has broken (nothing is lost yet), -EPIPE if the other side has ended
 * it, -EPROTO if that breaks the protocol, -ESTALE if it does not know this session (any more), -EACCES if it refuses the connection.
 */
int vg_durable_send(struct vg_durable *stream, uint64_t now_ms);
int vg_durable_receive(struct vg_durable *stream, uint64_t now_ms);
/* What time demands: then send. -ETIMEDOUT: the connection is dead. */
int vg_durable_tick(struct vg_durable *stream, uint64_t now_ms);

#endif
