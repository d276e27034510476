/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's processes: a connection each, which lives as long as its lane. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent.h"

enum {
	WAIT_MS = 8000,        /* a worker that is being restarted may take a moment */
	PREFER_RING_MS = 1500, /* the ring may still be saying hello at boot */
	OUT_MAX = 32 << 20,    /* replies that a process does not read */
};

struct client *agent_client_by_id(struct agent *agent, uint64_t id)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (agent->client[i].state != CLIENT_NONE && agent->client[i].id == id)
			return &agent->client[i];
	return NULL;
}

static void forget(struct client *client)
{
	vg_close_fd(&client->fd);
	buffer_free(&client->in);
	buffer_free(&client->out);
	*client = (struct client){ .fd = -1 };
}

void agent_client_drop(struct agent *agent, struct client *client)
{
	bool ring = client->ring;
	uint32_t lane = client->lane;
	uint64_t generation = client->generation;

	forget(client);
	if (generation)
		agent_close_lane(agent, ring, lane, generation);
}

void agent_client_refuse(struct client *client, int error, const char *text)
{
	struct vg_agent_answer answer = { .magic = VG_AGENT_MAGIC, .error = error };

	snprintf(answer.text, sizeof(answer.text), "%s", text);
	vg_send_fds(client->fd, &answer, sizeof(answer), NULL, 0);
}

void agent_accept(struct agent *agent)
{
	struct vg_agent_answer full = { .magic = VG_AGENT_MAGIC, .error = -EUSERS,
					.text = "too many processes of this VM use the channel" };
	VG_FD int fd = accept4(agent->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer = { 0 };
	socklen_t length = sizeof(peer);

	if (fd < 0)
		return;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state != CLIENT_NONE)
			continue;
		*client = (struct client){
			.state = CLIENT_ASKING,
			.fd = fd,
			.id = ++agent->next_id,
			.pid = (uint32_t)peer.pid,
			.since_ms = vg_now_ms(),
		};
		fd = -1;
		return;
	}
	vg_send_all(fd, &full, sizeof(full));
}

/* ---- asking ---- */

static void read_request(struct agent *agent, struct client *client)
{
	char text[160];
	ssize_t n = recv(client->fd, (uint8_t *)&client->request + client->request_filled,
			 sizeof(client->request) - client->request_filled, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		agent_client_drop(agent, client);
		return;
	}
	client->request_filled += (size_t)n;
	if (client->request_filled < sizeof(client->request))
		return;
	if (client->request.magic == VG_AGENT_MAGIC && client->request.version == VG_WIRE_VERSION) {
		client->state = CLIENT_WAITING;
		return;
	}
	snprintf(text, sizeof(text), "this process has wire version %u, the guest agent has %d",
		 client->request.version, VG_WIRE_VERSION);
	agent_client_refuse(client, -EPROTO, text);
	agent_client_drop(agent, client);
}

/* 1 ring, 0 serial, -1 neither now. */
static int choose(const struct agent *agent, uint64_t waited_ms)
{
	if (agent->use_ring && agent->ring.link.greeted)
		return 1;
	if (!agent->use_serial || !agent->serial.link.greeted)
		return -1;
	return !agent->use_ring || !agent->ring.memory || waited_ms > PREFER_RING_MS ? 0 : -1;
}

static void give_up(struct agent *agent, struct client *client)
{
	const char *text = "the host's worker is not there; see `vgpumgr virtio show` on the host";

	if (agent->ring.link.refusal[0])
		text = agent->ring.link.refusal;
	else if (agent->serial.link.refusal[0])
		text = agent->serial.link.refusal;
	else if (!agent->ring.memory && !agent->serial.connected)
		text = "this VM has no vgpumgr device";
	agent_client_refuse(client, -ENOTCONN, text);
	agent_client_drop(agent, client);
}

static bool refused(const struct agent *agent)
{
	return agent->ring.link.refusal[0] || agent->serial.link.refusal[0];
}

void agent_clients_tick(struct agent *agent)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];
		uint64_t waited = vg_now_ms() - client->since_ms;
		int ring;

		if (client->state != CLIENT_WAITING)
			continue;
		ring = choose(agent, waited);
		if (ring >= 0) {
			client->ring = ring;
			if (!agent_ask_lane(agent, ring, client))
				client->state = CLIENT_OPENING;
		}
		if (client->state == CLIENT_WAITING && (waited > WAIT_MS || (ring < 0 && refused(agent))))
			give_up(agent, client);
	}
}

void agent_client_opened(struct agent *agent, struct client *client, const struct vg_opened *opened)
{
	struct vg_agent_answer answer = {
		.magic = VG_AGENT_MAGIC,
		.transport = client->ring ? VG_TRANSPORT_RING : VG_TRANSPORT_SERIAL,
		.lane = opened->lane,
		.generation = opened->generation,
		.memory_size = agent->ring.size,
		.doorbell = agent->ring.doorbell_kind,
	};
	int fds[VG_AGENT_FDS] = { agent->ring.memory_fd, agent->ring.doorbell_fd, agent->ring.guard_fd };

	client->lane = opened->lane;
	client->generation = opened->generation;
	client->state = client->ring ? CLIENT_RING : CLIENT_SERIAL;
	if (vg_send_fds(client->fd, &answer, sizeof(answer), fds, client->ring ? VG_AGENT_FDS : 0))
		agent_client_drop(agent, client);
}

/* ---- serving ---- */

/* Whole messages only go on, so that those of several processes do not mix. Negative: not a message of this lane. */
static int relay(struct agent *agent, struct client *client)
{
	size_t at = 0;
	int error = 0;

	while (!error && client->in.filled - at >= sizeof(struct vg_message)) {
		struct vg_message message;
		size_t size;

		memcpy(&message, client->in.bytes + at, sizeof(message));
		if (message.magic != VG_MESSAGE_MAGIC || message.lane != client->lane ||
		    message.length > VG_MESSAGE_MAX ||
		    (message.kind != VG_KIND_FRAME && message.kind != VG_KIND_BULK))
			return -EPROTO;
		size = sizeof(message) + message.length;
		if (client->in.filled - at < size)
			break;
		error = agent_serial_send(agent, message.lane, message.kind,
					  client->in.bytes + at + sizeof(message), message.length, NULL, 0);
		at += size;
	}
	buffer_take(&client->in, at);
	return error;
}

static void read_client(struct agent *agent, struct client *client)
{
	uint8_t bytes[16384];
	ssize_t n = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || client->state != CLIENT_SERIAL) {
		agent_client_drop(agent, client);
		return;
	}
	if (buffer_add(&client->in, bytes, (size_t)n) || relay(agent, client))
		agent_client_drop(agent, client);
}

static void write_client(struct agent *agent, struct client *client)
{
	ssize_t n = send(client->fd, client->out.bytes, client->out.filled, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n >= 0)
		buffer_take(&client->out, (size_t)n);
	else if (errno != EAGAIN && errno != EINTR)
		agent_client_drop(agent, client);
}

void agent_client_event(struct agent *agent, struct client *client, short events)
{
	if ((events & POLLOUT) && client->out.filled)
		write_client(agent, client);
	if (client->state == CLIENT_NONE || !(events & ~POLLOUT))
		return;
	if (client->state == CLIENT_ASKING)
		read_request(agent, client);
	else
		read_client(agent, client);
}

void agent_client_message(struct agent *agent, const struct vg_message *message, const void *body)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state != CLIENT_SERIAL || client->lane != message->lane)
			continue;
		if (message->kind == VG_KIND_LOST)
			client->generation = 0;
		if (client->out.filled > OUT_MAX || buffer_add(&client->out, message, sizeof(*message)) ||
		    buffer_add(&client->out, body, message->length))
			agent_client_drop(agent, client);
		else
			write_client(agent, client);
		return;
	}
}
