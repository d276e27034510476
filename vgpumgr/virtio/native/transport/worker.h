/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the worker side. Threads: the main one serves lane 0, the serial stream and the keeper; each lane has its
 * own, which is the only reader of its frames. Answers come from any thread.
 */
#ifndef VG_WORKER_H
#define VG_WORKER_H

#include <pthread.h>

#include "ring.h"
#include "stats.h"

enum lane_state { LANE_FREE, LANE_OPEN, LANE_CLOSING };

/* A call that the guest waits for. The lane's reader begins it; who answers ends it, under the answer lock. */
struct pending {
	_Atomic bool busy;       /* the rest is written before, and read after */
	uint32_t sequence;
	uint8_t *bulk;           /* ring: in the window; serial: ours, to be freed */
	uint32_t bulk_length;
};

/* A serial message on its way to the lane's thread. */
struct parcel {
	struct parcel *next;
	uint32_t kind, length;
	uint8_t body[];
};

struct vg_lane {
	struct vg_server *server;
	uint32_t number;         /* 0: control */
	bool ring;
	_Atomic int state;
	uint64_t generation;
	struct vg_peer peer;
	void *session;
	uint32_t open_sequence;  /* of the control frame that asked for this lane */
	struct vg_lane_stats *stats;

	struct vg_control *control;
	struct vg_ring submit, reply;
	uint8_t *window;
	uint32_t window_size;
	uint64_t released;       /* what submit_tail says */
	vg_word32 wake;          /* futex: rises to wake the thread */
	_Atomic bool asleep;

	pthread_mutex_t queue_lock;
	struct parcel *first, **last;
	size_t queued;           /* bytes not yet consumed, message headers included */
	uint32_t uncredited;     /* consumed, and not yet told to the guest */
	uint8_t *bulk;           /* collected for the next frame */
	size_t bulk_filled;

	vg_word32 answer_lock;   /* see lock.h */
	struct pending pending[VG_SLOTS];
	_Alignas(8) uint8_t payload[VG_PAYLOAD_RING_MAX];
};

struct vg_server {
	const struct vg_session_ops *ops;
	uint8_t hash[VG_HASH_SIZE];
	char api_version[32];
	int doorbell, keeper;
	uint32_t epoch, counter;
	uint32_t number;         /* of the attachment in its VM */
	char device[VG_DEVICE_NAME];
	uint8_t *memory;         /* NULL: serial only */
	struct vg_layout layout;
	struct vg_header *header;
	struct vg_stats *stats;

	pthread_mutex_t lock;    /* lane states, stats of ended lanes, the log */
	struct vg_lane *lane[VG_LANE_TABLE];
	_Atomic unsigned running;
	struct vg_lane control_ring, control_serial;
	bool greeted[2];         /* ring, serial */
	uint32_t next_lane[2];
	unsigned logged;
	uint64_t log_second;

	const char *serial_path;
	int serial;
	_Atomic bool serial_broken;
	bool synced;
	uint64_t serial_retry_ms;
	pthread_mutex_t serial_lock; /* one message at a time goes out */
	uint8_t *serial_in;
	size_t serial_filled;
};

/* worker_lane.c: the life of lanes */
int vg_lane_start(struct vg_server *server, bool ring, const struct vg_open *open, uint32_t sequence);
void vg_lane_setup_ring(struct vg_lane *lane, uint32_t submit_size, uint32_t reply_size);

/* worker_lane_state.c */
void vg_lane_close(struct vg_lane *lane);
void vg_lanes_close(struct vg_server *server, bool ring);
void vg_lane_wake(struct vg_lane *lane);

/* worker_frame.c: frames in, answers out */
/* Checks a copied header and readies the call; fills pending if it wants a reply. Negative: violation (text says). */
int vg_frame_accept(struct vg_lane *lane, const struct vg_frame_header *header, struct vg_call *call,
		    const char **text);
/* The next frame of a ring lane: 1 and a call, 0 nothing there, negative: violation. */
int vg_ring_take(struct vg_lane *lane, struct vg_call *call, const char **text);
/* The same of a serial lane. */
int vg_serial_take(struct vg_lane *lane, struct vg_call *call, const char **text);
/* The frame in a message's body. */
int vg_serial_body(struct vg_lane *lane, const uint8_t *body, uint32_t length, struct vg_call *call,
		   const char **text);
void vg_pending_drop(struct vg_lane *lane);

/* worker_control.c: lane 0 */
int vg_control_frame(struct vg_lane *control, const struct vg_call *call);
void vg_control_poll(struct vg_server *server);

/* worker_serial_send.c: the stream, outgoing */
int vg_serial_send(struct vg_server *server, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		   const void *b, size_t b_length);
/* Bytes that are no message; the serial lock is held. */
int vg_serial_write(struct vg_server *server, const void *bytes, size_t length);
/* The lane has consumed this much; tells the guest now and then, always if it is all. */
void vg_serial_credit(struct vg_lane *lane, uint32_t bytes);

/* worker_serial.c: the stream, incoming */
void vg_serial_poll(struct vg_server *server, bool readable);
void vg_serial_hang_up(struct vg_server *server);

/* worker_log.c */
void vg_violation(struct vg_server *server, uint32_t lane, bool ring, const char *text);
void vg_log(struct vg_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
