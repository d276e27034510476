/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the worker side. Processes: the *server*, which the keeper starts, has one thread; it serves lane 0, the serial
 * stream and the keeper, and loads no driver. Each lane has a *session*, a process that the server starts and that ends
 * with the lane: its main thread is the only reader of the lane's frames, and answers come from any of its threads. A
 * spare session has started already and waits for the next lane.
 *
 * A session is taken to be the guest's: what it says is checked like what a guest says, and the server waits for none. A
 * ring's session works on the channel's memory itself; a serial lane's gets and gives messages over a socket pair, which
 * also carries what server and session tell each other (enum vg_session_kind).
 */
#ifndef VG_WORKER_H
#define VG_WORKER_H

#include <sys/types.h>

#include "ring.h"
#include "stats.h"

/* ---- a lane where it is served: in its session, or lane 0 in the server ---- */

/* A call that the guest waits for. The lane's reader begins it; who answers ends it, under the answer lock. */
struct pending {
	_Atomic bool busy;       /* the rest is written before, and read after */
	uint32_t sequence;
	uint8_t *bulk;           /* ring: in the window; serial: ours, to be freed */
	uint32_t bulk_length;
};

struct vg_lane {
	struct vg_server *server; /* of lane 0; NULL in a session */
	uint32_t number;         /* 0: control */
	bool ring;
	uint64_t generation;
	struct vg_lane_words *words;
	struct vg_lane_stats *stats; /* NULL: lane 0 */
	struct vg_health_stats *health; /* of all lanes; NULL: lane 0 */
	struct vg_watched *watched; /* this lane's; NULL: lane 0 */
	_Atomic unsigned threads; /* that are watched */

	/* ring */
	struct vg_control *control;
	struct vg_ring submit, reply;
	uint8_t *window;
	uint32_t window_size, bulk_max;
	uint64_t released;       /* what submit_tail says */

	/* serial */
	int socket;              /* to the server; -1: lane 0 */
	uint32_t uncredited;     /* bytes consumed, and not yet told to the guest */
	uint8_t *bulk;           /* collected for the next frame */
	size_t bulk_filled;

	char refusal[128];       /* why open() refuses it; may be empty */
	_Atomic bool output;     /* waits to be fetched: replies say so */
	vg_word32 answer_lock;   /* see lock.h */
	struct pending pending[VG_SLOTS];
	_Alignas(8) uint8_t payload[VG_PAYLOAD_RING_MAX];
};

/* worker_lane_state.c: any thread may look at a lane's state or close it */
/* Lane and rings as the memory has them; vg_lane_clear() readies the memory first. */
void vg_lane_map(struct vg_lane *lane, void *memory, const struct vg_layout *layout);
void vg_lane_clear(struct vg_control *control);
void vg_words_wake(struct vg_lane_words *words);

/* worker_frame.c: frames in, answers out */
/* Checks a copied header and readies the call; fills pending if it wants a reply. Negative: violation (text says). */
int vg_frame_accept(struct vg_lane *lane, const struct vg_frame_header *header, struct vg_call *call,
		    const char **text);
/* The next frame of a ring lane: 1 and a call, 0 nothing there, negative: violation. */
int vg_ring_take(struct vg_lane *lane, struct vg_call *call, const char **text);
/* A message of a serial lane: bulk is kept (0), a frame becomes a call (1). */
int vg_serial_take(struct vg_lane *lane, const struct vg_message *message, const uint8_t *body, struct vg_call *call,
		   const char **text);
void vg_pending_drop(struct vg_lane *lane);

/* worker_interface.c */
/* Answers a frame of VG_OP_INTERFACE, and notes for the keeper (stats: NULL: does not) what differs from `who`, a text of its
 * own before the version. Negative: violation. */
int vg_interface_answer(struct vg_lane *lane, const struct vg_call *call, const struct vg_interface *ours,
			struct vg_stats *stats, const char *who, const char *version);

/* worker_log.c */
void vg_violation(struct vg_lane *lane, const char *text);
int vg_session_tell(int socket, uint32_t kind, const void *body, size_t length);
/* worker_stream.c: a message of this lane to the guest; in a session by way of the server */
int vg_serial_send(struct vg_lane *lane, uint32_t kind, const void *a, size_t a_length, const void *b,
		   size_t b_length);

/* ---- what server and session tell each other: struct vg_message, its body; and serial messages as they are ---- */

enum vg_session_kind {
	VG_SESSION_SERVE = 64,   /* to the session: struct vg_serve */
	VG_SESSION_READY,        /* to the server, as all that follow: it has started */
	VG_SESSION_FAILED,       /* text: it cannot start */
	VG_SESSION_OPENED,       /* struct vg_session_opened */
	VG_SESSION_VIOLATION,    /* text */
};

struct vg_session_opened {
	int32_t error;           /* 0, or why it refuses its lane */
	char text[128];          /* the same for a person; may be empty */
};

struct vg_serve {
	uint64_t generation;
	struct vg_peer peer;     /* its lane is the one to be served */
};

enum { VG_WARN_S = 60 };

/* What a process has been given by the one that started it. */
struct vg_inherited {
	int memory, doorbell, stats, control, watch, limits, exports;
	unsigned epoch, number;
	const char *serial, *device;
	unsigned warn_s, end_s;
	bool session;            /* control is the socket to the server */
};

/* worker_session.c: all of a session's process */
int vg_session_main(int argc, char **argv, const struct vg_inherited *in, const struct vg_interface *interface,
		    const struct vg_session_ops *ops);

/* ---- the server ---- */

enum lane_state { LANE_FREE, LANE_OPEN, LANE_CLOSING };

/* A session's process. */
struct vg_session {
	pid_t pid;               /* 0: none */
	int socket;
	int errors;              /* of its standard error's pipe, to be read when it has ended */
	int exports;             /* on which it asks for what it shares: worker_exports.h */
	bool ready, failed, violated;
	uint64_t kill_ms;        /* when it is killed, or found to be stuck; 0: never */
	bool killed, overdue;
};

#define VG_NO_SESSION ((struct vg_session){ .socket = -1, .errors = -1, .exports = -1 })

/* A serial message on its way to a session. */
struct parcel {
	struct parcel *next;
	size_t length;
	uint8_t bytes[];
};

struct vg_entry {
	uint32_t number;
	bool ring;
	char name[sizeof(((struct vg_peer *)0)->name)]; /* as it was opened: a session can write into what stats show */
	int state;
	uint64_t generation;
	uint32_t user;           /* of the guest, as struct vg_open has it */
	uint32_t open_sequence;  /* of the control frame that asked for this lane */
	unsigned hello;          /* the agent's that it came after */
	bool answered;
	bool reserved;           /* no process has it yet: it has no session */
	struct vg_session session;
	struct vg_lane_stats *stats;
	struct vg_lane_words *words;
	struct vg_control *control; /* ring */
	struct parcel *first, **last;
	size_t uncredited;       /* bytes that the guest has sent and not got back as credit */
};

/* What a thread was last seen to execute, and since when. */
struct vg_seen {
	uint64_t running, since_ms;
	bool named;
};

struct vg_server {
	const struct vg_interface *interface;
	char api_version[32];
	char **argv;             /* a session's, without what it inherits */
	int memory_fd, stats_fd, watch_fd, limits_fd;
	struct vg_watch *watch;
	const struct vg_session_ops *ops;
	unsigned warn_s, end_s;  /* see VG_OPTION_WATCHDOG */
	uint64_t watch_ms;
	struct vg_seen seen[VG_LANE_TABLE][VG_WATCHED_THREADS];
	int doorbell, keeper;
	uint32_t epoch, counter;
	uint32_t number;         /* of the attachment in its VM */
	char device[VG_DEVICE_NAME];
	uint8_t *memory;         /* NULL: serial only */
	struct vg_layout layout;
	struct vg_header *header;
	struct vg_stats *stats;
	struct vg_exports *exports; /* NULL: no session has shared anything yet */

	struct vg_entry entry[VG_LANE_TABLE];
	struct vg_session spare;
	struct vg_session stuck[VG_STUCK_MAX];
	uint64_t spare_ms;       /* when the next spare may be started */
	unsigned spare_failures; /* in a row */
	char failure[VG_STATS_TEXT]; /* of the last session that did not start */
	int spare_status;        /* of the first spare, if it has ended; -1 */

	struct vg_lane control_ring, control_serial;
	struct vg_lane_words control_words[2];
	bool greeted[2];         /* ring, serial */
	unsigned hellos[2];
	uint32_t next_lane[2];
	uint64_t left_out;       /* lines that found no room in the log's pipe */
	uint64_t limits_ms;      /* when those who look from outside are told again what the VM holds */

	const char *serial_path;
	int serial;
	bool serial_broken, synced;
	uint64_t serial_retry_ms;
	uint8_t *serial_in, *serial_out;
	size_t serial_filled, out_filled;
	uint64_t out_ms;         /* when the stream last took something, or had nothing to take */
};

/* worker_entry.c: lanes as the server has them */
int vg_entry_open(struct vg_server *server, bool ring, const struct vg_open *open, uint32_t sequence);
/* A lane of the ring for a process to come, and its session when that is there. */
int vg_entry_reserve(struct vg_server *server, struct vg_opened *opened);
int vg_entry_claim(struct vg_server *server, const struct vg_claim *claim);
void vg_entries_unreserve(struct vg_server *server);
void vg_entry_close(struct vg_entry *entry);
void vg_entries_close(struct vg_server *server, bool ring);
/* The session has ended, or stays without its lane: the entry may be taken again. */
void vg_entry_free(struct vg_server *server, struct vg_entry *entry);
/* Answers the agent's open; once. */
void vg_entry_answer(struct vg_server *server, struct vg_entry *entry, int error, const char *text);
/* A serial message for the lane's session. */
int vg_entry_deliver(struct vg_server *server, struct vg_entry *entry, const void *message, size_t length);
void vg_entry_flush(struct vg_entry *entry);

/* worker_spawn.c: sessions' processes are started; worker_watch.c: watched, killed and reaped */
int vg_session_spawn(struct vg_server *server, struct vg_session *session);
/* Starts the spare, if it is due. */
void vg_spare_keep(struct vg_server *server);
void vg_sessions_reap(struct vg_server *server);
void vg_sessions_tick(struct vg_server *server);
/* Messages of a session; entry is NULL for the spare. */
void vg_session_read(struct vg_server *server, struct vg_session *session, struct vg_entry *entry);

/* worker_slow.c: calls that the driver has had for long */
int vg_watch_open(struct vg_server *server);
void vg_watch_look(struct vg_server *server);

/* worker_control.c: lane 0 */
int vg_control_frame(struct vg_lane *control, const struct vg_call *call);
void vg_control_poll(struct vg_server *server);
/* Writes the server's words of lane 0 of the ring as they must be. */
void vg_control_publish(struct vg_server *server);

/* worker_stream.c: the serial stream, outgoing; never waits */
int vg_stream_send(struct vg_server *server, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		   const void *b, size_t b_length);
/* Bytes that are no message. */
int vg_stream_write(struct vg_server *server, const void *bytes, size_t length);
void vg_stream_flush(struct vg_server *server);
bool vg_stream_is_full(const struct vg_server *server);

/* worker_serial.c: the stream, incoming */
/* A connection from the keeper; closed if there is one. */
void vg_serial_adopt(struct vg_server *server, int fd);
void vg_serial_poll(struct vg_server *server, short ready);
void vg_serial_hang_up(struct vg_server *server);

/* worker_words.c: what sessions say on their standard error */
int vg_errors_open(int pair[2]);
void vg_log_text(struct vg_server *server, const char *who, const char *text, size_t length);
void vg_last_words(struct vg_server *server, struct vg_session *session, const char *who);
/* Closes its descriptors. */
void vg_session_forget(struct vg_session *session);

/* worker_log.c */
void vg_report_violation(struct vg_server *server, uint32_t lane, bool ring, const char *text);
void vg_log(struct vg_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
