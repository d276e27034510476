/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-guestd: owns the guest's channel devices and gives each process that asks a lane. One thread, one poll loop.
 * A VM has a channel for each attachment: a ring, a serial port, or both; the attachment's number is on each of them.
 * It trusts the host, and the guest's processes only as far as their own lane.
 */
#ifndef VG_AGENT_H
#define VG_AGENT_H

#include <poll.h>
#include <stdio.h>
#include <sys/types.h>

#include "../transport/ring.h"
#include "../transport/util.h"

enum { AGENT_CLIENTS = 64, AGENT_CHANNELS = 16, AGENT_PATH = 256 };

enum client_state { CLIENT_NONE, CLIENT_ASKING, CLIENT_WAITING, CLIENT_OPENING, CLIENT_RING, CLIENT_SERIAL };

struct buffer {
	uint8_t *bytes;
	size_t filled, room;
};

struct client {
	enum client_state state;
	int fd;
	uint64_t id;             /* never used again */
	uint32_t pid;
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
};

struct link {                    /* the control lane of one ring or one port */
	struct agent *agent;
	bool ring;               /* what it is part of: struct agent_ring, else struct agent_serial */
	int (*send)(struct link *link, const struct vg_frame_header *header, const void *payload);
	bool present;            /* there is a device, and number is known */
	uint32_t number;         /* of the attachment */
	char device[VG_DEVICE_NAME];
	bool greeted;            /* the worker has answered hello */
	uint32_t counter;
	struct request request[VG_SLOTS];
	struct vg_close due[VG_LANE_TABLE]; /* lanes to give back when a request can be made again */
	unsigned due_count;
	char refusal[200];       /* why hello was refused */
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
	bool use_ring, use_serial;
	int listen;
	uint64_t next_id;
	struct client client[AGENT_CLIENTS];
	struct agent_ring ring[AGENT_CHANNELS];
	struct agent_serial serial[AGENT_CHANNELS];
};

/* control.c: requests on lane 0, the same over both transports */
int agent_say_hello(struct link *link);
int agent_ask_lane(struct link *link, struct client *client);
void agent_close_lane(struct link *link, uint32_t lane, uint64_t generation);
void agent_close_due(struct link *link);
bool agent_is_asking(const struct link *link);

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
void agent_client_refuse(struct client *client, int error, const char *text);
void agent_client_message(struct link *link, const struct vg_message *message, const void *body);
void agent_client_drop(struct agent *agent, struct client *client);
void agent_clients_tick(struct agent *agent);
/* The link of that number over that transport, or NULL. */
struct link *agent_link(struct agent *agent, bool ring, uint32_t number);
struct client *agent_client_by_id(struct agent *agent, uint64_t id);

/* buffer.c */
int buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_take(struct buffer *buffer, size_t length);
void buffer_free(struct buffer *buffer);

/* log.c */
void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
