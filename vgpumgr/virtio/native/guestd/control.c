/* SPDX-License-Identifier: Apache-2.0 */
/* Lane 0: what the agent asks of the worker. */
#include <string.h>
#include <sys/utsname.h>

#include "agent.h"
#include "vg_interface.h"

enum {
	RESERVE_AFTER_MS = 40, /* a process has made its first calls by then */
	/* the worker had none: its spare session has not started, or all lanes are in use */
	RESERVE_AGAIN_MS = 50,
	RESERVE_SELDOM_MS = 5000,
	HELLO_MS = 5000,
	ANSWER_MS = 30000, /* a worker that answers so late has been asleep; saying hello again ends all lanes */
};

static struct request *take_request(struct link *link, uint32_t op, uint64_t client)
{
	for (uint32_t i = 0; i < VG_SLOTS; i++) {
		struct request *request = &link->request[i];

		if (request->busy)
			continue;
		link->counter++;
		*request = (struct request){ true, op, link->counter * VG_SLOTS + i, client, vg_now_ms() };
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
	error = link->send(link, &header, payload);
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

/* For the host to know: processes say for themselves what they have. */
void agent_say_interface(struct link *link)
{
	if (memcmp(link->hash, vg_interface.hash, VG_HASH_SIZE))
		ask(link, VG_OP_INTERFACE, 0, vg_interface.words, vg_interface.count * sizeof(vg_interface.words[0]));
}

static struct vg_open describe(const struct client *client)
{
	struct vg_open open = { .pid = client->pid, .user = client->user };

	memcpy(open.api_version, client->request.api_version, sizeof(open.api_version));
	memcpy(open.name, client->request.name, sizeof(open.name));
	return open;
}

int agent_ask_lane(struct link *link, struct client *client)
{
	struct vg_open open = describe(client);

	return ask(link, VG_CONTROL_OPEN, client->id, &open, sizeof(open));
}

void agent_reserve(struct link *link)
{
	struct vg_open open = { 0 };

	if (!link->ring || !link->greeted || link->reserved.generation || vg_now_ms() < link->reserve_ms)
		return;
	/* one request at a time; a refusal is followed by another try */
	if (ask(link, VG_CONTROL_RESERVE, 0, &open, sizeof(open)))
		return;
	link->reserve_ms = vg_now_ms() + link->reserve_wait_ms;
	if (link->reserve_wait_ms < RESERVE_SELDOM_MS)
		link->reserve_wait_ms *= 2;
}

void agent_reserve_soon(struct link *link)
{
	link->reserve_ms = vg_now_ms() + RESERVE_AFTER_MS;
	link->reserve_wait_ms = RESERVE_AGAIN_MS;
}

bool agent_is_reserving(const struct link *link)
{
	for (unsigned i = 0; i < VG_SLOTS; i++)
		if (link->request[i].busy && link->request[i].op == VG_CONTROL_RESERVE)
			return true;
	return false;
}

int agent_claim(struct link *link, struct client *client)
{
	struct vg_claim claim = { .lane = { .lane = link->reserved.lane, .generation = link->reserved.generation } };

	claim.open = describe(client);
	return ask(link, VG_CONTROL_CLAIM, client->id, &claim, sizeof(claim));
}

void agent_close_lane(struct link *link, uint32_t lane, uint64_t generation)
{
	struct vg_close body = { .lane = lane, .generation = generation };

	if (!ask(link, VG_CONTROL_CLOSE, 0, &body, sizeof(body)))
		return;
	if (link->due_count < VG_LANE_TABLE)
		link->due[link->due_count++] = body;
	else
		agent_log("cannot give lane %u back to the worker", lane);
}

void agent_close_due(struct link *link)
{
	while (link->due_count &&
	       !ask(link, VG_CONTROL_CLOSE, 0, &link->due[link->due_count - 1], sizeof(struct vg_close)))
		link->due_count--;
}

bool agent_is_asking(const struct link *link)
{
	for (unsigned i = 0; i < VG_SLOTS; i++)
		if (link->request[i].busy)
			return true;
	return false;
}

/* Whether a hello would end a lane, or a process waits for one. */
static bool is_used(const struct link *link)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (link->agent->client[i].state >= CLIENT_OPENING && link->agent->client[i].link == link)
			return true;
	return false;
}

/*
 * All but an open are answered at once; that waits for its session to start. One whose process has gone may have been
 * answered with a lane that the worker keeps for nobody: hello ends that, where it ends no other.
 */
bool agent_answer_is_lost(const struct link *link)
{
	uint64_t now = vg_now_ms(), latest = 0;
	unsigned busy = 0;

	for (unsigned i = 0; i < VG_SLOTS; i++) {
		const struct request *request = &link->request[i];
		uint64_t limit_ms = request->op == VG_CONTROL_HELLO ? HELLO_MS : ANSWER_MS;

		if (!request->busy)
			continue;
		if (now - request->since_ms > limit_ms && (request->op != VG_CONTROL_OPEN || !is_used(link)))
			return true;
		latest = request->since_ms > latest ? request->since_ms : latest;
		busy++;
	}
	/* nothing can be asked any more */
	return busy == VG_SLOTS && now - latest > ANSWER_MS;
}

void agent_probe(struct link *link)
{
	struct vg_close none = { .lane = 1 }; /* there is no such generation: nothing is closed */
	uint64_t now = vg_now_ms();
	bool waits = false;

	for (unsigned i = 0; i < VG_SLOTS; i++) {
		const struct request *request = &link->request[i];

		if (request->busy && request->op != VG_CONTROL_OPEN)
			return;
		waits |= request->busy && now - request->since_ms > HELLO_MS;
	}
	if (!waits || now - link->probe_ms < HELLO_MS)
		return;
	link->probe_ms = now;
	ask(link, VG_CONTROL_CLOSE, 0, &none, sizeof(none));
}
