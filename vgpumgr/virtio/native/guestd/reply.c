/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker answers on lane 0, and the end of a link: the clients that wait are told. */
#include "agent.h"

static void copy_text(char *to, size_t size, const void *data, size_t length)
{
	vg_clean_text(to, size, data, length);
}

static void take_hello(struct link *link, int status, const void *data, size_t length)
{
	struct vg_welcome welcome;

	if (!status && length == sizeof(welcome)) {
		memcpy(&welcome, data, sizeof(welcome));
		link->greeted = true;
		link->refusal[0] = '\0';
		copy_text(link->device, sizeof(link->device), welcome.device, sizeof(welcome.device));
		memcpy(link->hash, welcome.hash, sizeof(link->hash));
		agent_say_interface(link);
		agent_log("channel %u up over %s", link->number, link->ring ? "shared memory" : "virtio-serial");
		return;
	}
	if (status)
		copy_text(link->refusal, sizeof(link->refusal), data, length);
	else
		snprintf(link->refusal, sizeof(link->refusal), "the worker on the host answers hello in another way");
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
			agent_client_refuse(agent, client, status ? status : -EPROTO, text);
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

static void take_reserved(struct link *link, int status, const void *data, size_t length)
{
	if (status || length != sizeof(link->reserved) || link->reserved.generation)
		return;
	memcpy(&link->reserved, data, length);
}

/* The client has had its answer: its lane has ended before it began. */
static void take_claimed(struct link *link, uint64_t id, int status)
{
	struct client *client = status ? agent_client_by_id(link->agent, id) : NULL;

	if (client)
		agent_client_drop(link->agent, client);
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
	else if (request->op == VG_CONTROL_RESERVE)
		take_reserved(link, header->status, data, length);
	else if (request->op == VG_CONTROL_CLAIM)
		take_claimed(link, request->client, header->status);
	agent_close_due(link);
}

void agent_link_down(struct link *link)
{
	struct agent *agent = link->agent;

	link->greeted = false;
	link->due_count = 0; /* the session's lanes end with it */
	link->reserved.generation = 0;
	link->reserve_ms = UINT64_MAX;
	for (unsigned i = 0; i < VG_SLOTS; i++)
		link->request[i].busy = false;
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		struct client *client = &agent->client[i];

		if (client->state < CLIENT_OPENING || client->link != link)
			continue;
		client->generation = 0;
		if (client->state == CLIENT_OPENING)
			client->state = CLIENT_WAITING; /* the next worker may take it */
		else if (client->state == CLIENT_SERIAL || (client->state == CLIENT_RING && client->relay.pid))
			agent_client_drop(agent, client);
	}
}
