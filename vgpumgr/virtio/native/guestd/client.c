/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's processes: a connection each, which lives as long as its lane. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent.h"

enum {
	ASK_MS = 5000,         /* a process says at once what it wants */
	WAIT_MS = 8000,        /* a worker that is being restarted may take a moment */
	PREFER_RING_MS = 1500, /* the ring may still be saying hello at boot */
	OUT_MAX = 32 << 20,    /* replies that a process does not read */
};

struct client *agent_client_by_id(struct agent *agent, uint64_t id)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (agent->client[i].state != CLIENT_NONE && agent->client[i].state != CLIENT_ENDING &&
		    agent->client[i].id == id)
			return &agent->client[i];
	return NULL;
}

static void forget(struct client *client)
{
	vg_close_fd(&client->fd);
	buffer_free(&client->in);
	buffer_free(&client->out);
	*client = (struct client){ .fd = -1, .relay = { .socket = -1, .memory = -1, .doorbell = -1 } };
}

void agent_client_drop(struct agent *agent, struct client *client)
{
	(void)agent;
	struct link *link = client->link;
	uint32_t lane = client->lane;
	uint64_t generation = client->generation;

	if (client->relay.pid) { /* the worker gives the lane to others: nothing may write to it any more */
		vg_close_fd(&client->fd);
		client->state = CLIENT_ENDING;
		agent_relay_end(client);
		return;
	}
	forget(client);
	if (generation)
		agent_close_lane(link, lane, generation);
}

void agent_client_relay_gone(struct agent *agent, struct client *client)
{
	if (agent_relay_gone(client))
		agent_client_drop(agent, client);
}

/* ---- asking ---- */

/* A place for a new process: of those that have not asked yet, the oldest has had its time when all are taken. */
static struct client *free_place(struct agent *agent)
{
	struct client *oldest = NULL;

	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state == CLIENT_NONE)
			return client;
		if (client->state == CLIENT_ASKING && (!oldest || client->id < oldest->id))
			oldest = client;
	}
	if (oldest)
		agent_client_drop(agent, oldest);
	return oldest;
}

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
		client->since_ms = vg_now_ms();
		return;
	}
	snprintf(text, sizeof(text), "this process has wire version %u, the guest agent has %d",
		 client->request.version, VG_WIRE_VERSION);
	agent_client_refuse(agent, client, -EPROTO, text);
	agent_client_drop(agent, client);
}

static void take_client(struct agent *agent, struct client *client, int fd)
{
	*client = (struct client){
		.state = CLIENT_ASKING,
		.fd = fd,
		.id = ++agent->next_id,
		.relay = { .socket = -1, .memory = -1, .doorbell = -1 },
		.since_ms = vg_now_ms(),
	};
	if (!agent_identify(agent, client)) {
		read_request(agent, client); /* most have sent it by now: a turn of the loop less */
		return;
	}
	agent_client_refuse(agent, client, -EUSERS, "this user has too many connections to the guest agent");
	agent_client_drop(agent, client);
}

void agent_accept(struct agent *agent)
{
	struct vg_agent_answer full = { .magic = VG_AGENT_MAGIC, .error = -EUSERS,
					.text = "too many processes of this VM use the channel" };
	int fd = accept4(agent->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client;

	if (fd < 0)
		return;
	client = free_place(agent);
	if (client)
		return take_client(agent, client, fd);
	vg_send_all(fd, &full, sizeof(full));
	close(fd);
}

/* All links there can be: first the rings, then the ports. */
static struct link *link_at(struct agent *agent, unsigned i)
{
	return i < AGENT_CHANNELS ? &agent->ring[i].link : &agent->serial[i - AGENT_CHANNELS].link;
}

struct link *agent_link(struct agent *agent, bool ring, uint32_t number)
{
	for (unsigned i = 0; i < 2 * AGENT_CHANNELS; i++) {
		struct link *link = link_at(agent, i);

		if (link->present && link->ring == ring && link->number == number)
			return link;
	}
	return NULL;
}

/* The lowest number of an attachment that is at least `least`; -1: there is none. */
static int64_t next_number(struct agent *agent, int64_t least)
{
	int64_t found = -1;

	for (unsigned i = 0; i < 2 * AGENT_CHANNELS; i++) {
		const struct link *link = link_at(agent, i);

		if (link->present && link->number >= least && (found < 0 || link->number < found))
			found = link->number;
	}
	return found;
}

static uint32_t count_devices(struct agent *agent)
{
	uint32_t count = 0;

	for (int64_t number = next_number(agent, 0); number >= 0; number = next_number(agent, number + 1))
		count++;
	return count;
}

void agent_client_refuse(struct agent *agent, struct client *client, int error, const char *text)
{
	struct vg_agent_answer answer = { .magic = VG_AGENT_MAGIC, .error = error, .devices = count_devices(agent) };

	snprintf(answer.text, sizeof(answer.text), "%s", text);
	vg_send_fds(client->fd, &answer, sizeof(answer), NULL, 0);
}

/* The attachment that programs call device `index`; -1: there are not so many. */
static int64_t number_of(struct agent *agent, uint32_t index)
{
	int64_t number = next_number(agent, 0);

	while (number >= 0 && index--)
		number = next_number(agent, number + 1);
	return number;
}

/* A device whose memory is mapped, and whose header nobody has written yet. */
static bool ring_is_coming(const struct agent *agent)
{
	for (unsigned i = 0; i < AGENT_CHANNELS; i++)
		if (agent->ring[i].memory && !agent->ring[i].link.present)
			return true;
	return false;
}

/* Where the client's lane is to be; NULL: nowhere now. */
static struct link *choose(struct agent *agent, const struct client *client, uint64_t waited_ms)
{
	int64_t number = number_of(agent, client->request.device);
	struct link *ring, *serial;

	if (number < 0 || (waited_ms <= PREFER_RING_MS && ring_is_coming(agent)))
		return NULL;
	ring = agent_link(agent, true, (uint32_t)number);
	serial = agent_link(agent, false, (uint32_t)number);
	if (ring && ring->greeted)
		return ring;
	if (!serial || !serial->greeted)
		return NULL;
	return !ring || waited_ms > PREFER_RING_MS ? serial : NULL;
}

static const char *first_refusal(struct agent *agent)
{
	for (unsigned i = 0; i < 2 * AGENT_CHANNELS; i++)
		if (link_at(agent, i)->refusal[0])
			return link_at(agent, i)->refusal;
	return NULL;
}

static void give_up(struct agent *agent, struct client *client)
{
	const char *refusal = first_refusal(agent);
	uint32_t count = count_devices(agent);
	char text[200];

	if (refusal)
		snprintf(text, sizeof(text), "%s", refusal);
	else if (!count)
		snprintf(text, sizeof(text), "this VM has no vgpumgr device");
	else if (client->request.device >= count)
		snprintf(text, sizeof(text), "this VM has no device %u: CUDA_VISIBLE_DEVICES can name 0 to %u",
			 client->request.device, count - 1);
	else
		snprintf(text, sizeof(text), "the host's worker is not there; see `vgpumgr virtio show` on the host");
	agent_client_refuse(agent, client, -ENOTCONN, text);
	agent_client_drop(agent, client);
}

/* Nothing is gained by waiting: what was asked for is not there, all that is there has answered. */
static bool is_hopeless(struct agent *agent, const struct client *client, uint64_t waited_ms)
{
	uint32_t count = count_devices(agent);

	if (first_refusal(agent))
		return true;
	return count && client->request.device >= count && waited_ms > PREFER_RING_MS;
}

/* A relay that sleeps does not see the end of its lane. */
static bool has_lost_lane(const struct client *client)
{
	const struct agent_ring *ring = (const struct agent_ring *)client->link;

	return client->state == CLIENT_RING && client->relay.pid && ring->memory &&
	       vg_load64(&vg_lane_at(ring->memory, &ring->layout, client->lane)->life) != client->generation;
}

/* The lane that the worker has reserved: it hears whose it is while the client has it already. */
static bool take_reserved(struct agent *agent, struct client *client, struct link *link)
{
	struct vg_opened opened = link->reserved;
	struct agent_ring *ring = (struct agent_ring *)link;

	if (!opened.lane || opened.lane > ring->layout.lane_count)
		return false;
	if (vg_load64(&vg_lane_at(ring->memory, &ring->layout, opened.lane)->life) != opened.generation) {
		link->reserved.generation = 0; /* the worker has taken it back */
		return false;
	}
	if (agent_lane_is_busy(agent, client, opened.lane) || agent_claim(link, client))
		return false;
	link->reserved.generation = 0;
	if (!client->direct && agent_relay_start(agent, client)) {
		agent_close_lane(link, opened.lane, opened.generation);
		agent_client_refuse(agent, client, -EAGAIN, "the guest agent cannot start a process for this lane");
		agent_client_drop(agent, client);
		return true;
	}
	agent_client_opened(agent, client, &opened);
	return true;
}

/* Asks the worker for the client's lane, or refuses the client. */
static void ask_for(struct agent *agent, struct client *client, struct link *link)
{
	unsigned most;
	char text[160];

	if (!agent_user_has_room(agent, client, link, &most)) {
		snprintf(text, sizeof(text), "user %u holds %u lanes of this VM, as many as one user may", client->uid,
			 most);
		agent_client_refuse(agent, client, -EUSERS, text);
		agent_client_drop(agent, client);
		return;
	}
	client->link = link;
	if (link->reserved.generation && take_reserved(agent, client, link))
		return;
	/* it may be the last lane: a moment later the client has it */
	if (agent_is_reserving(link))
		return;
	agent->asked_ms = vg_now_ms();
	if (agent_ask_lane(link, client))
		return;
	client->state = CLIENT_OPENING;
	/* while the worker opens the lane */
	if (!link->ring || client->direct || !agent_relay_start(agent, client))
		return;
	agent_client_refuse(agent, client, -EAGAIN, "the guest agent cannot start a process for this lane");
	agent_client_drop(agent, client);
}

static void wait_for_lane(struct agent *agent, struct client *client)
{
	uint64_t waited = vg_now_ms() - client->since_ms;
	struct link *link = choose(agent, client, waited);

	if (link)
		ask_for(agent, client, link);
	if (client->state == CLIENT_WAITING && (waited > WAIT_MS || (!link && is_hopeless(agent, client, waited))))
		give_up(agent, client);
}

void agent_clients_tick(struct agent *agent)
{
	for (unsigned i = 0; i < 2 * AGENT_CHANNELS; i++)
		agent_close_due(link_at(agent, i));
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state == CLIENT_WAITING)
			wait_for_lane(agent, client);
		else if (has_lost_lane(client))
			agent_client_drop(agent, client);
		else if (client->state == CLIENT_ASKING && vg_now_ms() - client->since_ms > ASK_MS)
			agent_client_drop(agent, client);
	}
}

/* Whether the client can have this lane. */
static bool take_lane(struct agent *agent, struct client *client, const struct vg_opened *opened)
{
	const struct agent_ring *ring = client->link->ring ? (const struct agent_ring *)client->link : NULL;

	if (ring && agent_lane_is_busy(agent, client, opened->lane)) {
		/* the worker ended that lane while we asked: one of ours may still write to it */
		agent_close_lane(client->link, opened->lane, opened->generation);
		client->state = CLIENT_WAITING;
		return false;
	}
	if (ring && (!opened->lane || opened->lane > ring->layout.lane_count)) {
		agent_client_refuse(agent, client, -EPROTO, "the worker gave a lane that there is not");
		agent_client_drop(agent, client);
		return false;
	}
	client->lane = opened->lane;
	client->generation = opened->generation;
	client->state = ring ? CLIENT_RING : CLIENT_SERIAL;
	return true;
}

void agent_client_opened(struct agent *agent, struct client *client, const struct vg_opened *opened)
{
	struct agent_ring *ring = client->link->ring ? (struct agent_ring *)client->link : NULL;
	struct vg_agent_answer answer = {
		.magic = VG_AGENT_MAGIC,
		.transport = ring ? VG_TRANSPORT_RING : VG_TRANSPORT_SERIAL,
		.lane = opened->lane,
		.generation = opened->generation,
		.memory_size = ring ? ring->size : 0,
		.doorbell = ring ? ring->doorbell_kind : 0,
		.devices = count_devices(agent),
	};
	int fds[VG_AGENT_FDS] = { -1, -1, -1 };

	if (!take_lane(agent, client, opened))
		return;
	if (ring) {
		agent_reserve_soon(client->link);
		fds[0] = ring->memory_fd;
		fds[1] = ring->doorbell_fd;
		fds[2] = ring->guard_fd;
	}
	memcpy(answer.hash, client->link->hash, sizeof(answer.hash));
	snprintf(answer.text, sizeof(answer.text), "%s", client->link->device);
	if ((ring && !client->direct && agent_relay_serve(agent, client, &answer, fds)) ||
	    vg_send_fds(client->fd, &answer, sizeof(answer), fds, ring ? VG_AGENT_FDS : 0))
		agent_client_drop(agent, client);
}

/* ---- serving ---- */

/* Whole messages only go on, so that those of several processes do not mix. Negative: not a message of this lane. */
static int relay(struct client *client)
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
		error = agent_serial_send((struct agent_serial *)client->link, message.lane, message.kind,
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
	/* nothing more is to be said on a lane that has ended */
	if (n <= 0 || client->state != CLIENT_SERIAL || !client->generation) {
		agent_client_drop(agent, client);
		return;
	}
	if (buffer_add(&client->in, bytes, (size_t)n) || relay(client))
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

void agent_client_message(struct link *link, const struct vg_message *message, const void *body)
{
	struct agent *agent = link->agent;

	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		/* one whose lane has ended may still be there when another has the number */
		if (client->state != CLIENT_SERIAL || client->link != link || client->lane != message->lane ||
		    !client->generation)
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
