/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's transport: frames between a guest process and the worker of its VM, over the ring in shared memory
 * or over virtio-serial. docs/wire-format.md is the truth about bytes; this header is the interface above them.
 *
 * Parts: the guest agent (vgpumgr-guestd) owns the guest's devices, says hello, and gives each guest process that asks
 * one *lane*. The shim in that process speaks on its lane through vg_conn below. The worker starts one
 * *session* for each lane, a process of its own that is called through vg_session_ops and ends with the lane. The keeper
 * (vgpumgr-keeper) owns memory and sockets for as long as the VM's attachment lives, and starts the worker, again if it
 * dies.
 *
 * A lane is ordered: frames arrive in the order in which they were begun. Posted frames ("quiet") have no reply.
 * Called frames have one; a worker may answer a later frame before an earlier one (a blocked synchronise must not hold
 * up another thread of the same process), replies are matched by sequence number.
 *
 * The guest is hostile to the worker and not the reverse. Nothing here prints, exits or touches signals on the guest
 * side. Functions return 0 or a negative errno; -ECONNRESET: the session is lost (worker died, violation, VM reset)
 * and stays lost for this process; -EPROTO: versions differ (vg_conn_error() names both); -ENOTCONN: no channel;
 * -EOPNOTSUPP: the worker does not have this operation as the caller's interface has it.
 */
#ifndef VGPUMGR_TRANSPORT_H
#define VGPUMGR_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VG_FRAME_MAX = 1 << 20,     /* header and payload; bulk is apart */
	VG_PAYLOAD_RING_MAX = 16384, /* payload that every transport takes in one frame */
	VG_HASH_SIZE = 16,
	VG_OPERATIONS_MAX = 500,     /* of an interface: what fits in one frame on lane 0 */
	VG_ID_SHIFT = 48,
};

/*
 * What one side can send or execute: a word for each operation, its id in the upper 16 bits and the beginning of its hash
 * below, in rising order of ids; and a hash of them all. It must stay for as long as it is used.
 */
struct vg_interface {
	const uint64_t *words;
	uint32_t count;
	uint8_t hash[VG_HASH_SIZE];
};

/* ---- guest side -------------------------------------------------------------------------------------------- */

struct vg_conn;

enum vg_bulk {
	VG_BULK_NONE = 0,
	VG_BULK_TO_WORKER = 1,  /* the caller fills frame.bulk before post or call */
	VG_BULK_TO_GUEST = 2,   /* the worker fills it; it stands in reply.bulk */
};

struct vg_frame {
	void *payload;
	size_t payload_length;
	void *bulk;             /* NULL unless VG_BULK_TO_WORKER */
	size_t bulk_length;
	uint64_t internal[4];
};

struct vg_reply {
	int32_t status;         /* the CUresult (or other API's code) of the call */
	const void *data;
	size_t length;
	const void *bulk;
	size_t bulk_length;
	bool output;            /* the session has output of this process, to be fetched */
	uint64_t internal[4];
};

/*
 * Connects this process: asks the agent at $VGPUMGR_AGENT (default /run/vgpumgr/guest.sock) for a lane.
 * If the worker's interface is another one, both sides compare: operations that differ are then never sent.
 * api_version is the shim's, for messages ("0.1.0").
 */
int vg_conn_open(const struct vg_interface *interface, const char *api_version, struct vg_conn **out);
/* The same on the VM's device of that index; vg_conn_open() takes the first. */
int vg_conn_open_device(const struct vg_interface *interface, const char *api_version, uint32_t device,
			struct vg_conn **out);
/* The same on a socket that is connected to the agent and becomes the connection's, under a name for others to read. */
int vg_conn_open_on(const struct vg_interface *interface, const char *api_version, const char *name, int socket,
		    struct vg_conn **out);
/* How many devices the VM has, and what CUDA on the host calls that of this connection ("" if it does not say). */
uint32_t vg_conn_devices(const struct vg_conn *conn);
/* The same as the agent said it last to this thread, also where it opened nothing; 0: it said nothing. */
uint32_t vg_conn_devices_told(void);
/* How many operations of the caller's interface the worker has otherwise or not at all. */
uint32_t vg_conn_refused(const struct vg_conn *conn);
const char *vg_conn_device_name(const struct vg_conn *conn);
/* Ends the lane. Safe in a child after fork: it then only drops the child's copy, the parent's lane is untouched. */
void vg_conn_close(struct vg_conn *conn);
/* Why the last open failed or the session was lost, for a human; "" if there is nothing to say. Thread-local. */
const char *vg_conn_error(void);
/* For callers that open on behalf of somebody: what vg_conn_error() is to say in this thread. */
void vg_conn_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Largest bulk that one frame may carry on this transport; larger copies go in chunks. */
size_t vg_conn_bulk_max(const struct vg_conn *conn);
/* In such pieces a copy that is longer goes fastest: one side fills the next while the other empties the last. */
size_t vg_conn_piece(const struct vg_conn *conn);
/* Synchronous waits so far on this connection: the tested round-trip number. */
uint64_t vg_conn_waits(const struct vg_conn *conn);
bool vg_conn_lost(const struct vg_conn *conn);
/* The process ends: whatever waits on this connection in so many milliseconds loses it. */
void vg_conn_hurry(struct vg_conn *conn, unsigned milliseconds);

/*
 * Begins a frame: fills frame->payload (and bulk for VG_BULK_TO_WORKER) with room to encode into. Takes the lane's
 * lock; vg_post(), vg_call() or vg_cancel() releases it. May wait for room. Threads may call all of this at once.
 */
int vg_begin(struct vg_conn *conn, uint32_t op, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
	     struct vg_frame *frame);
void vg_cancel(struct vg_conn *conn, struct vg_frame *frame);
int vg_post(struct vg_conn *conn, struct vg_frame *frame);
/* Sends, waits for the reply. reply->data and reply->bulk stay valid until vg_reply_done(), which must follow. */
int vg_call(struct vg_conn *conn, struct vg_frame *frame, struct vg_reply *reply);
/*
 * vg_call() in two, for a caller that has several calls on their way: each vg_call_send() that succeeds is followed by
 * vg_call_wait() with the same reply. Who has a call on its way begins the next with vg_begin_ahead() alone, which does not wait
 * for others to make room: -EAGAIN, also of its vg_call_send().
 */
int vg_begin_ahead(struct vg_conn *conn, uint32_t op, size_t payload_length, enum vg_bulk direction, size_t bulk_length,
		   struct vg_frame *frame);
int vg_call_send(struct vg_conn *conn, struct vg_frame *frame, struct vg_reply *reply);
int vg_call_wait(struct vg_conn *conn, struct vg_reply *reply);
void vg_reply_done(struct vg_conn *conn, struct vg_reply *reply);

/* Where the reply of vg_exchange() goes. */
struct vg_words {
	uint64_t *at;           /* room for exactly this many bytes, a multiple of 8 */
	size_t room;
	size_t length;          /* of the reply's data; the data is there only if that is `room` */
	int32_t status;
	bool output;            /* as in struct vg_reply */
};

/*
 * A whole call of a few 64-bit words (`length` in bytes) each way and without bulk: as vg_begin(), vg_call() and
 * vg_reply_done(), at a fraction of their cost.
 */
int vg_exchange(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length, struct vg_words *reply);
/* As vg_begin() and vg_post(), of words and without bulk. */
int vg_post_words(struct vg_conn *conn, uint32_t op, const uint64_t *request, size_t length);

/* ---- worker side ------------------------------------------------------------------------------------------- */

struct vg_lane; /* the worker's end of one lane */

struct vg_call {
	uint32_t op;
	uint32_t sequence;
	bool wants_reply;
	const void *payload;      /* a private copy: validated once, it stays what it was */
	size_t payload_length;
	/* Bulk stands in memory that the guest may be changing meanwhile: hand it on, never parse it. */
	const void *bulk_in;
	size_t bulk_in_length;
	void *bulk_out;           /* to fill for VG_BULK_TO_GUEST; bulk_out_length is the guest's wish, already bounded */
	size_t bulk_out_length;
	bool started;             /* of one that is waited for elsewhere: what is left is the wait */
};

struct vg_peer {              /* who opened the lane, as the guest says: for display only */
	uint32_t lane;
	uint32_t pid;
	char name[32];
	char api_version[32];     /* of its libraries */
	bool ring;                /* false: virtio-serial */
};

/* Called in the session's process. */
struct vg_session_ops {
	/* Loads what calls need, before there is a lane. A non-zero return: `message` says why no lane can be served; else
	 * what the host's log should know. May be NULL. */
	int (*start)(int argc, char **argv, char *message, size_t size);
	/* A non-zero return refuses the lane: the process is told if `refuses`, else it finds that its lane has ended. */
	int (*open)(struct vg_lane *lane, const struct vg_peer *peer, void **session);
	/* open() may refuse a process for what it is: each waits for that. Else it may write frames while open() runs. */
	bool refuses;
	/* One frame. A negative return is a protocol violation: it ends the session and is counted and logged once.
	 * If wants_reply, vg_answer() must be called exactly once, now or later, from any thread. */
	int (*call)(void *session, struct vg_lane *lane, const struct vg_call *call);
	/* After the last call; no answer may be outstanding when it returns. Frees all that the session held; a session
	 * that takes long for it is killed. */
	void (*close)(void *session);
	/* What a person calls an operation. May be NULL. */
	const char *(*name)(uint32_t op);
	/* A call takes so long that to wait for the next one awake is of no use. */
	bool sleeps;
	/* Nothing is pending on the lane: a place for housekeeping. May be NULL. */
	void (*idle)(void *session);
	/* Which operations are executed, for a worker whose interface has none because that shows with the lane only. The words
	 * stay for as long as the session. Negative: a violation; more than 0: the lane ends meanwhile. May be NULL. */
	int (*interface)(void *session, struct vg_interface *interface);
};

/* Answers a call: status, up to VG_PAYLOAD_RING_MAX bytes of data, and how much of bulk_out was filled. */
int vg_answer(struct vg_lane *lane, uint32_t sequence, int32_t status, const void *data, size_t length,
	      size_t bulk_length);
/* In open(): what the process is told if it is refused. */
void vg_lane_refuse(struct vg_lane *lane, const char *text);
/* Ends the lane, from any thread. */
void vg_lane_close(struct vg_lane *lane);
/* Largest bulk of a frame, as the guest has it. */
size_t vg_lane_bulk_max(const struct vg_lane *lane);
/* True once the lane is going away (guest process died, channel lost): long waits should give up. */
bool vg_lane_closing(const struct vg_lane *lane);
/* The memory in which bulk of the lane stands; NULL where it has none, over virtio-serial. */
uint8_t *vg_lane_window(const struct vg_lane *lane, size_t *size);
/*
 * Around what a thread of a session does for one call, on other threads than the one that call() comes on: who takes long is
 * named, and may be ended.
 */
void vg_watch_begin(struct vg_lane *lane, uint32_t op);
void vg_watch_end(void);
/* Between them: the call waits for its turn, and is not slow for that. */
uint64_t vg_watch_pause(void);
void vg_watch_resume(uint64_t paused);
/* For `virtio show`: the guest's libraries have refused a call of this name, which need not end with a zero. */
void vg_lane_refused(struct vg_lane *lane, const char *name, size_t length);
/* For `virtio show`: device memory that this session holds. */
void vg_lane_account(struct vg_lane *lane, uint64_t memory_bytes);
/* What all lanes of the VM use, at most `most` of them; how many they are. */
struct vg_lane_use {
	uint64_t pid;             /* in the guest */
	uint64_t memory_bytes;
};
size_t vg_lane_uses(const struct vg_lane *lane, struct vg_lane_use *uses, size_t most);
/* Whether answers on this lane say, from the next one on, that the guest process has output to fetch. */
void vg_lane_output(struct vg_lane *lane, bool waits);
/* Of a session's process: where it reads what is written to its own standard error, a pipe of VG_ERRORS_BYTES that drops
 * what it has no room for. The server reads there when the process has ended. */
enum { VG_ERRORS_FD = 6, VG_ERRORS_BYTES = 256 << 10 };

/*
 * As the keeper starts it: serves the channel until the keeper says stop, in sessions that it starts with the same
 * arguments; as such a session: serves one lane. argc/argv are the process's own; returns its exit status.
 */
int vg_worker_serve(int argc, char **argv, const struct vg_interface *interface, const char *api_version,
		    const struct vg_session_ops *ops);

#endif
