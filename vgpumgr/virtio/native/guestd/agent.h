/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-guestd: owns the guest's channel devices and gives each process that asks a lane. One thread, one poll loop.
 * A VM has a channel for each attachment: a ring, a serial port, or both; the attachment's number is on each of them.
 * It trusts the host, and the guest's processes only as far as their own lane. A BAR maps as a whole or not at all, so
 * a process that must not see the others' lanes gets memory of its own, and a *relay* of ours, a process, that copies
 * frames between it and the lane (docs/adr/0014).
 */
#ifndef VG_AGENT_H
#define VG_AGENT_H

#include <poll.h>
#include <stdio.h>
#include <sys/types.h>

#include "../transport/ring.h"
#include "../transport/util.h"

enum { AGENT_CLIENTS = 64, AGENT_CHANNELS = 16, AGENT_PATH = 256 };

/* Ending: it has gone, but its relay has not yet, and may still write to the lane. */
enum client_state {
	CLIENT_NONE, CLIENT_ASKING, CLIENT_WAITING, CLIENT_OPENING, CLIENT_RING, CLIENT_SERIAL, CLIENT_ENDING,
};
enum lanes { LANES_AUTO, LANES_PRIVATE, LANES_SHARED };

struct buffer {
	uint8_t *bytes;
	size_t filled, room;
};

/* The agent's end of a private lane. */
struct relay {
	pid_t pid;               /* 0: there is none */
	int socket;              /* hangs up when the process has ended */
	int memory, doorbell;    /* as the client has them; -1: it has no lane yet */
};

/* What a relay is told, with descriptors of window, its doorbell, the client's memory and the client's doorbell. */
enum { RELAY_SOCKET = 3, RELAY_FDS = 4, RELAY_TEXT = 64 };
struct relay_job {
	uint64_t generation;
	struct vg_layout layout; /* of the window; the client's rings and window have the same sizes */
	uint32_t lane;
	uint32_t doorbell_kind;
	uint32_t identity;       /* user and group that it runs as; 0: as it is */
	int32_t agent;           /* its process */
};

struct client {
	enum client_state state;
	int fd;
	uint64_t id;             /* never used again */
	uint32_t pid;
	uid_t uid;
	uint32_t user;           /* of struct vg_open: with whose processes it may share */
	bool direct;             /* may have the whole window */
	struct relay relay;
	uint64_t since_ms;
	struct vg_agent_request request;
	size_t request_filled;
	struct link *link;       /* where its lane is, or is being opened */
	uint32_t lane;
	uint64_t generation;     /* 0: the lane has ended */
	struct buffer in, out;   /* serial */
};

/* A control frame whose reply has not come. */
struct request {
	bool busy;
	uint32_t op;
	uint32_t sequence;
	uint64_t client;         /* its id, for open */
	uint64_t since_ms;
};

struct link {                    /* the control lane of one ring or one port */
	struct agent *agent;
	bool ring;               /* what it is part of: struct agent_ring, else struct agent_serial */
	int (*send)(struct link *link, const struct vg_frame_header *header, const void *payload);
	bool present;            /* there is a device, and number is known */
	uint32_t number;         /* of the attachment */
	char device[VG_DEVICE_NAME];
	uint8_t hash[VG_HASH_SIZE]; /* of the worker's interface */
	bool greeted;            /* the worker has answered hello */
	uint32_t counter;
	uint64_t probe_ms;       /* when it was last tried whether anything is answered */
	struct request request[VG_SLOTS];
	struct vg_close due[VG_LANE_TABLE]; /* lanes to give back when a request can be made again */
	unsigned due_count;
	char refusal[200];       /* why hello was refused */
	/* of a ring: a lane for the next process */
	struct vg_opened reserved; /* generation 0: none */
	uint64_t reserve_ms;     /* when the next one is asked for; UINT64_MAX: not before a process has had a lane */
	unsigned reserve_wait_ms; /* and again, if it is refused */
};

struct agent_ring {
	struct link link;        /* first: a pointer to it is one to the ring */
	const char *ivshmem_socket; /* tests */
	int server;              /* tests: connection to the keeper */
	char device[AGENT_PATH]; /* sysfs directory of the PCI device */
	int memory_fd, doorbell_fd, guard_fd;
	uint32_t doorbell_kind;
	uint8_t *memory;
	size_t size;
	volatile uint32_t *bar;
	vg_word32 *guard;
	struct vg_layout layout;
	struct vg_control *control;
	struct vg_ring submit, reply;
	uint64_t life;           /* of lane 0, when we said hello */
	bool damaged;            /* lane 0 has words that cannot be */
	uint64_t look_ms, hello_ms;
};

struct agent_serial {
	struct link link;        /* first, as above */
	const char *path;        /* tests */
	int listen, fd;
	bool connected;          /* the host's end is open */
	bool synced;
	uint64_t nonce, look_ms, sync_ms;
	struct buffer in, out;
};

struct agent {
	const char *socket;
	const char *ivshmem_socket[AGENT_CHANNELS], *serial_listen[AGENT_CHANNELS]; /* tests */
	unsigned mode;
	gid_t group;
	enum lanes lanes;
	gid_t direct_group;      /* -1: none */
	unsigned user_lanes;     /* 0: three quarters */
	bool use_ring, use_serial;
	int listen;
	uint64_t next_id;
	uint64_t asked_ms;       /* when the last lane was asked for */
	struct relay spare;      /* has no lane yet */
	uint64_t spare_ms;       /* when one is started */
	struct client client[AGENT_CLIENTS];
	struct agent_ring ring[AGENT_CHANNELS];
	struct agent_serial serial[AGENT_CHANNELS];
};

/* control.c: requests on lane 0, the same over both transports */
int agent_say_hello(struct link *link);
/* Which operations the libraries of this package have, if the worker's are others. */
void agent_say_interface(struct link *link);
int agent_ask_lane(struct link *link, struct client *client);
void agent_close_lane(struct link *link, uint32_t lane, uint64_t generation);
/* Asks for a lane for the next process some time after this one has come; gives the one that is there to a client. */
void agent_reserve_soon(struct link *link);
void agent_reserve(struct link *link);
bool agent_is_reserving(const struct link *link);
int agent_claim(struct link *link, struct client *client);
void agent_close_due(struct link *link);
bool agent_is_asking(const struct link *link);
/* What should have been answered by now was not: the answer has been destroyed, or the worker does not see what is asked. */
bool agent_answer_is_lost(const struct link *link);
/* Where only such answers are due as may take long: asks for something that is answered at once, now and then. */
void agent_probe(struct link *link);

/* reply.c: the answers to them */
void agent_take_reply(struct link *link, const struct vg_reply_header *header, const void *data);
/* The channel has gone: nothing that was asked will be answered. */
void agent_link_down(struct link *link);

/* ring.c */
void agent_ring_init(struct agent *agent, unsigned index);
void agent_ring_tick(struct agent_ring *ring);

/* device.c: finding what QEMU gives the guest */
/* A device that no other ring of the agent has. */
int agent_find_ivshmem(struct agent_ring *ring);
int agent_join_server(struct agent_ring *ring);
/* Opens a port named org.vgpumgr.N that no other has, and notes N; negative if there is none. */
int agent_open_port(struct agent_serial *serial);

/* serial.c */
void agent_serial_init(struct agent *agent, unsigned index);
void agent_serial_tick(struct agent_serial *serial);
void agent_serial_event(struct agent_serial *serial, short events);

/* serial_send.c */
int agent_serial_send(struct agent_serial *serial, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		      const void *b, size_t b_length);
/* Too much waits to go out: its clients are not read meanwhile. */
bool agent_serial_full(const struct agent_serial *serial);

/* client.c */
void agent_accept(struct agent *agent);
void agent_client_event(struct agent *agent, struct client *client, short events);
void agent_client_opened(struct agent *agent, struct client *client, const struct vg_opened *opened);
void agent_client_refuse(struct agent *agent, struct client *client, int error, const char *text);
void agent_client_message(struct link *link, const struct vg_message *message, const void *body);
void agent_client_drop(struct agent *agent, struct client *client);
/* Its relay has ended. */
void agent_client_relay_gone(struct agent *agent, struct client *client);
void agent_clients_tick(struct agent *agent);
/* The link of that number over that transport, or NULL. */
struct link *agent_link(struct agent *agent, bool ring, uint32_t number);
struct client *agent_client_by_id(struct agent *agent, uint64_t id);

/* user.c: who may have what */
/* Notes who the client is; -EUSERS: that user has too many connections already. */
int agent_identify(struct agent *agent, struct client *client);
/* Whether lanes are private, but for members of the direct group. */
bool agent_keeps_apart(const struct agent *agent);
/* Another lane of that link for the client's user? The number that he may have, in `most`. */
bool agent_user_has_room(struct agent *agent, const struct client *client, const struct link *link, unsigned *most);
/* -1: there is no such group. */
gid_t agent_group(const char *name);

/* lane.c: private lanes */
/* The client's relay, which waits for its job: the spare one, or a new one; and the client's memory. */
int agent_relay_start(struct agent *agent, struct client *client);
/* When the next spare is to be started; UINT64_MAX: not now. */
uint64_t agent_relay_due_ms(const struct agent *agent);
/* Starts a spare one, some time after a client has taken the last. */
void agent_relay_prepare(struct agent *agent);
/* Sends the relay its job, and puts what the client gets into answer and fds. */
int agent_relay_serve(struct agent *agent, struct client *client, struct vg_agent_answer *answer, int fds[VG_AGENT_FDS]);
/* Tells the client that its lane has ended, and ends the relay; it is gone when agent_relay_gone() says so. */
void agent_relay_end(struct client *client);
/* The relay has ended: says why, if it did. False: it has not. */
bool agent_relay_gone(struct client *client);
/* Whether another client's relay may still write to this lane. */
bool agent_lane_is_busy(struct agent *agent, const struct client *client, uint32_t lane);

/* relay.c: the relay's process */
int relay_main(void);
/* lock_down.c: from now on it may read, write and wait, and dies of anything else. */
int agent_lock_down(void);

/* buffer.c */
int buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_take(struct buffer *buffer, size_t length);
void buffer_free(struct buffer *buffer);

/* log.c */
/* What a client brought about: not more than one line a second. */
void agent_log_client(const char *format, ...) __attribute__((format(printf, 1, 2)));
void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
