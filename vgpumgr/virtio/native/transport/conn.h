/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the guest side: what conn.c (calls, replies), conn_open.c (agent, fork) and the two transports share. */
#ifndef VG_CONN_H
#define VG_CONN_H

#include <stdarg.h>

#include "ring.h"

enum { SLOT_INLINE = 256, PENDING_BULK = 64 };
enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_DONE };

/* A call that waits, and then its reply. */
struct slot {
	vg_word32 state;
	uint32_t sequence;
	struct vg_reply_header reply;
	uint8_t small[SLOT_INLINE];
	uint8_t *large;          /* VG_PAYLOAD_RING_MAX bytes, made when first needed */
	uint8_t *bulk;           /* serial: collected here */
	size_t bulk_filled, bulk_room;
};

struct conn_ops {
	/* Room for a frame and its bulk, waiting for it or else -EAGAIN: fills frame. Under conn->lock. */
	int (*reserve)(struct vg_conn *conn, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
		       bool waits, struct vg_frame *frame);
	/* Sends what stands there; header is complete but for the bulk's place. Under conn->lock. */
	int (*send)(struct vg_conn *conn, struct vg_frame_header *header, struct vg_frame *frame);
	/* Gives back what reserve() took. Under conn->lock. */
	void (*cancel)(struct vg_conn *conn, struct vg_frame *frame);
	/* Takes what replies there are; the caller has the reader's role. May wait for up to a millisecond or so. */
	void (*drain)(struct vg_conn *conn);
	bool (*alive)(struct vg_conn *conn);
	/* The caller has read the reply's bulk. */
	void (*bulk_done)(struct vg_conn *conn, const struct vg_frame *frame);
	const void *(*reply_bulk)(struct vg_conn *conn, struct slot *slot, const struct vg_frame *frame);
	void (*destroy)(struct vg_conn *conn);
};

struct conn_ring {
	uint8_t *memory;
	size_t memory_size;
	struct vg_layout layout;
	struct vg_header *header;
	struct vg_control *control;
	struct vg_ring submit, reply;
	uint8_t *window;
	volatile uint32_t *bar;  /* doorbell register, or NULL and then an eventfd */
	int eventfd;
	const vg_word32 *guard;
	_Atomic uint64_t blocks; /* free blocks of the window */
	struct { uint64_t end, mask; uint32_t bytes; } pending[PENDING_BULK];
	uint32_t pending_first, pending_count;
	size_t on_its_way;       /* bytes of the window whose frames the worker has not consumed */
	uint64_t stalled;        /* the first of these frames has not kept up: its end */
	uint64_t heartbeat, heartbeat_at_ns;
	unsigned idle;           /* looks at an empty reply ring in a row */
};

struct conn_serial {
	uint8_t *out, *bulk_out;
	size_t bulk_out_room;
	_Atomic int64_t credit;
	uint8_t in[sizeof(struct vg_message) + VG_MESSAGE_MAX];
	size_t in_filled;
};

struct vg_conn {
	vg_word32 lock;          /* see lock.h */
	const struct conn_ops *ops;
	struct vg_conn *next;    /* of all in this process, for fork */
	bool relayed;            /* through a process of this guest, which wants to run, too */
	bool foreign;            /* made by the parent: this process must not touch the lane */
	vg_word32 losing;        /* somebody writes why */
	_Atomic bool lost;
	_Atomic uint64_t until_ms; /* the process ends, and waits no longer; 0: it lives */
	vg_word32 reading;       /* the reader's role is taken */
	_Atomic uint64_t waits;
	uint32_t counter, last_slot;
	int socket;
	uint32_t device, devices;
	char device_name[VG_DEVICE_NAME];
	const struct vg_interface *interface;
	bool differs;            /* some operations are refused: a bit for each word of the interface */
	uint64_t refused[VG_REFUSED_WORDS];
	uint32_t lane;
	uint64_t generation;
	size_t bulk_max, piece;
	char why[200];           /* written once, before lost is set */
	struct slot slot[VG_SLOTS];
	union {
		struct conn_ring ring;
		struct conn_serial serial;
	};
};

extern const struct conn_ops vg_ring_ops, vg_serial_ops;
/* Takes over those descriptors that it sets to -1. */
int vg_ring_attach(struct vg_conn *conn, const struct vg_agent_answer *answer, int fds[VG_AGENT_FDS]);
int vg_serial_attach(struct vg_conn *conn);

/* Ends the session for this process, keeping the first reason. Always -ECONNRESET. */
int vg_conn_lose(struct vg_conn *conn, const char *why);
/* Asks the worker which operations it has alike, unless its interface has the same hash. */
int vg_conn_compare(struct vg_conn *conn, const uint8_t theirs[VG_HASH_SIZE]);
/* Whether the worker does not have this operation, or has another. */
bool vg_conn_refuses(const struct vg_conn *conn, uint32_t op);
/* 0, or why there is nothing to wait for any more. */
int vg_conn_check(struct vg_conn *conn);
/* The reply is for this slot? NULL otherwise. */
struct slot *vg_conn_slot(struct vg_conn *conn, uint32_t sequence);
/* Where data of this length goes in the slot; NULL: out of memory. */
uint8_t *vg_slot_data(struct slot *slot, size_t length);
/* Until the slot has its reply. */
int vg_conn_await(struct vg_conn *conn, struct slot *slot);
/* One more round of waiting: spins first, then yields, then sleeps for up to a millisecond. */
void vg_backoff(unsigned round);
/* Tries to take the reader's role and drain; false if another thread has it. */
bool vg_conn_read(struct vg_conn *conn);
/* The ring's: whether the lane is what this connection was given. */
bool vg_ring_alive(struct vg_conn *conn);
void vg_ring_doorbell(struct conn_ring *ring);

static inline void vg_slot_free(struct slot *slot)
{
	vg_store32(&slot->state, SLOT_FREE);
}

/* Under the lock, so that no atomic addition is needed; read by anybody. */
static inline void vg_conn_count_wait(struct vg_conn *conn)
{
	uint64_t waits = atomic_load_explicit(&conn->waits, memory_order_relaxed);

	atomic_store_explicit(&conn->waits, waits + 1, memory_order_relaxed);
}

static inline bool vg_conn_become_reader(struct vg_conn *conn)
{
	uint32_t nobody = 0;

	return atomic_compare_exchange_strong_explicit(&conn->reading, &nobody, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void vg_conn_end_reading(struct vg_conn *conn)
{
	vg_store32(&conn->reading, 0);
}

#endif
