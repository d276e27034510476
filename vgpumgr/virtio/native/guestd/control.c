/* SPDX-License-Identifier: Apache-2.0 */
/* Lane 0: what the agent asks of the worker. */
#include <string.h>
#include <sys/utsname.h>

#include "agent.h"

#ifndef VGPUMGR_VERSION
#define VGPUMGR_VERSION "0.1.0"
#endif

static struct request *take_request(struct link *link, uint32_t op, uint64_t client)
{
	for (uint32_t i = 0; i < VG_SLOTS; i++) {
		struct request *request = &link->request[i];

		if (request->busy)
			continue;
		link->counter++;
		*request = (struct request){ true, op, link->counter * VG_SLOTS + i, client };
		return request;
	}
	return NULL;
}

static int ask(struct link *link, uint32_t op, uint64_t client, const void *payload, size_t length)
{
	struct request *request = take_request(link, op, client);
	struct vg_frame_header header = { .op = op, .flags = VG_WANTS_REPLY };
	int error;

	if (!request)
		return -EAGAIN;
	header.length = VG_ALIGN + (uint32_t)length;
	header.sequence = request->sequence;
	error = link->ring ? agent_ring_send((struct agent_ring *)link, &header, payload) :
			     agent_serial_send((struct agent_serial *)link, 0, VG_KIND_FRAME, &header, sizeof(header),
					       payload, length);
	if (error)
		request->busy = false;
	return error;
}

int agent_say_hello(struct link *link)
{
	struct vg_hello hello = { .version = VG_WIRE_VERSION, .agent = VGPUMGR_VERSION };
	struct utsname name;

	if (!uname(&name))
		snprintf(hello.kernel, sizeof(hello.kernel), "%.31s %.31s", name.release, name.machine);
	return ask(link, VG_CONTROL_HELLO, 0, &hello, sizeof(hello));
}

int agent_ask_lane(struct link *link, struct client *client)
{
	struct vg_open open = { .pid = client->pid };

	memcpy(open.hash, client->request.hash, sizeof(open.hash));
	memcpy(open.api_version, client->request.api_version, sizeof(open.api_version));
	memcpy(open.name, client->request.name, sizeof(open.name));
	return ask(link, VG_CONTROL_OPEN, client->id, &open, sizeof(open));
}

void agent_close_lane(struct link *link, uint32_t lane, uint64_t generation)
{
	struct vg_close body = { .lane = lane, .generation = generation };

	if (ask(link, VG_CONTROL_CLOSE, 0, &body, sizeof(body)))
		agent_log("cannot give lane %u back to the worker", lane);
}

static void copy_text(char *to, size_t size, const void *data, size_t length)
{
	vg_clean_text(to, size, data, length);
}

static void take_hello(struct link *link, int status, const void *data, size_t length)
{
	if (!status) {
		link->greeted = true;
		link->refusal[0] = '\0';
		copy_text(link->device, sizeof(link->device), data, length);
		agent_log("channel %u up over %s", link->number, link->ring ? "shared memory" : "virtio-serial");
		return;
	}
	copy_text(link->refusal, sizeof(link->refusal), data, length);
	agent_log("refused: %s", link->refusal);
}

static void take_opened(struct link *link, uint64_t id, int status, const void *data, size_t length)
{
	struct agent *agent = link->agent;
	struct client *client = agent_client_by_id(agent, id);
	struct vg_opened opened;
	char text[200];

	if (status || length != sizeof(opened)) {
		copy_text(text, sizeof(text), data, length);
		if (client)
			agent_client_refuse(client, status ? status : -EPROTO, text);
		if (client)
			agent_client_drop(agent, client);
		return;
	}
	memcpy(&opened, data, sizeof(opened));
	if (client)
		agent_client_opened(agent, client, &opened);
	else /* it died while it was waiting */
		agent_close_lane(link, opened.lane, opened.generation);
}

void agent_take_reply(struct link *link, const struct vg_reply_header *header, const void *data)
{
	struct request *request = &link->request[header->sequence % VG_SLOTS];
	size_t length = header->length - VG_ALIGN;

	if (!request->busy || request->sequence != header->sequence)
		return;
	request->busy = false;
	if (request->op == VG_CONTROL_HELLO)
		take_hello(link, header->status, data, length);
	else if (request->op == VG_CONTROL_OPEN)
		take_opened(link, request->client, header->status, data, length);
}

bool agent_is_asking(const struct link *link)
{
	for (unsigned i = 0; i < VG_SLOTS; i++)
		if (link->request[i].busy)
			return true;
	return false;
}

void agent_link_down(struct link *link)
{
	struct agent *agent = link->agent;

	link->greeted = false;
	for (unsigned i = 0; i < VG_SLOTS; i++)
		link->request[i].busy = false;
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state < CLIENT_OPENING || client->link != link)
			continue;
		client->generation = 0;
		if (client->state == CLIENT_OPENING)
			client->state = CLIENT_WAITING; /* the next worker may take it */
		else if (client->state == CLIENT_SERIAL)
			agent_client_drop(agent, client);
	}
}
