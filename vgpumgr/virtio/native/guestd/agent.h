/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-guestd: owns the guest's channel devices and gives each process that asks a lane. One thread, one poll loop.
 * It trusts the host, and the guest's processes only as far as their own lane.
 */
#ifndef VG_AGENT_H
#define VG_AGENT_H

#include <poll.h>
#include <stdio.h>
#include <sys/types.h>

#include "../transport/ring.h"
#include "../transport/util.h"

enum { AGENT_CLIENTS = 64, AGENT_PATH = 256 };

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
	bool ring;               /* where its lane is, or is being opened */
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

struct link {                    /* one transport's control lane */
	bool greeted;            /* the worker has answered hello */
	uint32_t counter;
	struct request request[VG_SLOTS];
	char refusal[200];       /* why hello was refused */
};

struct agent_ring {
	struct link link;
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
	struct link link;
	int listen, fd;
	bool connected;          /* the host's end is open */
	bool synced;
	uint64_t nonce, look_ms, sync_ms;
	struct buffer in, out;
};

struct agent {
	const char *socket, *ivshmem_socket, *serial_listen;
	unsigned mode;
	gid_t group;
	bool use_ring, use_serial;
	int listen;
	uint64_t next_id;
	struct client client[AGENT_CLIENTS];
	struct agent_ring ring;
	struct agent_serial serial;
};

/* control.c: requests on lane 0, the same over both transports */
int agent_say_hello(struct agent *agent, bool ring);
int agent_ask_lane(struct agent *agent, bool ring, struct client *client);
void agent_close_lane(struct agent *agent, bool ring, uint32_t lane, uint64_t generation);
void agent_take_reply(struct agent *agent, bool ring, const struct vg_reply_header *header, const void *data);
/* The channel has gone: nothing that was asked will be answered. */
void agent_link_down(struct agent *agent, bool ring);
bool agent_is_asking(const struct link *link);

/* ring.c */
void agent_ring_init(struct agent *agent);
void agent_ring_tick(struct agent *agent);
int agent_ring_send(struct agent *agent, const struct vg_frame_header *header, const void *payload);

/* device.c: finding what QEMU gives the guest */
int agent_find_ivshmem(struct agent_ring *ring);
int agent_join_server(struct agent_ring *ring, const char *path);
/* Opens the port named org.vgpumgr.0; negative if there is none. */
int agent_open_port(void);

/* serial.c */
void agent_serial_init(struct agent *agent);
void agent_serial_tick(struct agent *agent);
void agent_serial_event(struct agent *agent, short events);
int agent_serial_send(struct agent *agent, uint32_t lane, uint32_t kind, const void *a, size_t a_length, const void *b,
		      size_t b_length);
/* Too much waits to go out: clients are not read meanwhile. */
bool agent_serial_full(const struct agent *agent);

/* client.c */
void agent_accept(struct agent *agent);
void agent_client_event(struct agent *agent, struct client *client, short events);
void agent_client_opened(struct agent *agent, struct client *client, const struct vg_opened *opened);
void agent_client_refuse(struct client *client, int error, const char *text);
void agent_client_message(struct agent *agent, const struct vg_message *message, const void *body);
void agent_client_drop(struct agent *agent, struct client *client);
void agent_clients_tick(struct agent *agent);
struct client *agent_client_by_id(struct agent *agent, uint64_t id);

/* buffer.c */
int buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_take(struct buffer *buffer, size_t length);
void buffer_free(struct buffer *buffer);

void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
