/* SPDX-License-Identifier: Apache-2.0 */
/* Lane 0: the agent's hello, and lanes for guest processes. */
#include <stdio.h>

#include "util.h"
#include "worker.h"

static int refuse(struct vg_lane *control, uint32_t sequence, int error, const char *text)
{
	return vg_answer(control, sequence, error, text, strlen(text) + 1, 0) == -ENOENT ? -EPROTO : 0;
}

static int hello(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_server *server = control->server;
	struct vg_guest_stats *guest = &server->stats->guest[!control->ring];
	struct vg_welcome welcome = { 0 };
	struct vg_hello hello;
	char text[200];

	memcpy(&hello, call->payload, sizeof(hello));
	vg_entries_close(server, control->ring);
	server->hellos[!control->ring]++;
	vg_clean_text(guest->agent, sizeof(guest->agent), hello.agent, sizeof(hello.agent));
	vg_clean_text(guest->kernel, sizeof(guest->kernel), hello.kernel, sizeof(hello.kernel));
	vg_store32(&guest->version, hello.version);
	vg_store32(&guest->present, 1);
	server->greeted[!control->ring] = hello.version == VG_WIRE_VERSION;
	memset(server->stats->mismatch, 0, sizeof(server->stats->mismatch)); /* the package may be another by now */
	memcpy(welcome.device, server->device, sizeof(welcome.device));
	memcpy(welcome.hash, server->interface->hash, sizeof(welcome.hash));
	if (hello.version == VG_WIRE_VERSION)
		return vg_answer(control, call->sequence, 0, &welcome, sizeof(welcome), 0) == -ENOENT ? -EPROTO : 0;
	snprintf(text, sizeof(text), "the guest agent %s has wire version %u, the worker has %d", guest->agent,
		 hello.version, VG_WIRE_VERSION);
	return refuse(control, call->sequence, -EPROTO, text);
}

static int interface(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_server *server = control->server;
	struct vg_guest_stats *guest = &server->stats->guest[!control->ring];
	char version[sizeof(guest->agent)];

	vg_clean_text(version, sizeof(version), guest->agent, sizeof(guest->agent));
	/* one that has no operations has those of another host, which each process hears of */
	return vg_interface_answer(control, call, server->interface, server->interface->count ? server->stats : NULL,
				   "the VM has the guest package", version);
}

static int open_lane(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_server *server = control->server;
	struct vg_open open;
	int error;

	memcpy(&open, call->payload, sizeof(open));
	error = vg_entry_open(server, control->ring, &open, call->sequence);
	if (error == -EUSERS)
		return refuse(control, call->sequence, error, "all lanes of this VM are in use by other processes");
	return error ? refuse(control, call->sequence, error, "the worker cannot start a session for this process") : 0;
}

static int reserve_lane(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_opened opened;
	int error;

	if (!control->ring)
		return refuse(control, call->sequence, -EINVAL, "no lane is reserved on this transport");
	error = vg_entry_reserve(control->server, &opened);
	if (error)
		return refuse(control, call->sequence, error, "no lane can be reserved now");
	return vg_answer(control, call->sequence, 0, &opened, sizeof(opened), 0) == -ENOENT ? -EPROTO : 0;
}

static int claim_lane(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_claim claim;
	int error;

	memcpy(&claim, call->payload, sizeof(claim));
	error = control->ring ? vg_entry_claim(control->server, &claim) : -EINVAL;
	if (error)
		return refuse(control, call->sequence, error, "the lane is no longer reserved");
	return vg_answer(control, call->sequence, 0, NULL, 0, 0) == -ENOENT ? -EPROTO : 0;
}

static int close_lane(struct vg_lane *control, const struct vg_call *call)
{
	struct vg_server *server = control->server;
	struct vg_close body;
	struct vg_entry *entry;

	memcpy(&body, call->payload, sizeof(body));
	if (!body.lane || body.lane >= VG_LANE_TABLE)
		return -EPROTO;
	entry = &server->entry[body.lane];
	if (entry->ring == control->ring && entry->generation == body.generation)
		vg_entry_close(entry);
	return vg_answer(control, call->sequence, 0, NULL, 0, 0) == -ENOENT ? -EPROTO : 0;
}

int vg_control_frame(struct vg_lane *control, const struct vg_call *call)
{
	static const size_t size[] = {
		[VG_CONTROL_HELLO] = sizeof(struct vg_hello),
		[VG_CONTROL_OPEN] = sizeof(struct vg_open),
		[VG_CONTROL_CLOSE] = sizeof(struct vg_close),
		[VG_CONTROL_RESERVE] = sizeof(struct vg_open),
		[VG_CONTROL_CLAIM] = sizeof(struct vg_claim),
	};

	if (call->op == VG_OP_INTERFACE)
		return control->server->greeted[!control->ring] ? interface(control, call) : -EPROTO;
	if (call->op > VG_CONTROL_CLAIM || call->payload_length != size[call->op] || !call->wants_reply ||
	    call->bulk_in || call->bulk_out)
		return -EPROTO;
	if (call->op == VG_CONTROL_HELLO)
		return hello(control, call);
	if (!control->server->greeted[!control->ring])
		return -EPROTO;
	switch (call->op) {
	case VG_CONTROL_OPEN:
		return open_lane(control, call);
	case VG_CONTROL_RESERVE:
		return reserve_lane(control, call);
	case VG_CONTROL_CLAIM:
		return claim_lane(control, call);
	default:
		return close_lane(control, call);
	}
}

/* Lane 0 of the ring, made anew: the agent sees another `life` and says hello again. */
static void reset(struct vg_server *server)
{
	struct vg_lane *control = &server->control_ring;

	server->greeted[0] = false;
	server->hellos[0]++;
	vg_entries_close(server, true);
	vg_pending_drop(control);
	vg_lane_map(control, server->memory, &server->layout);
	vg_store64(&control->control->life, 0);
	vg_lane_clear(control->control);
	vg_store32(&control->words->closing, 0);
	control->generation = (uint64_t)server->epoch << 32 | ++server->counter;
	vg_store32(&control->control->parked, 1);
	vg_store64(&control->control->life, control->generation);
}

void vg_control_poll(struct vg_server *server)
{
	/* not more than a ring's worth in one go: the other duties of the main thread wait */
	enum { AT_ONCE = VG_CONTROL_RING / VG_ALIGN };
	struct vg_lane *control = &server->control_ring;
	const char *text = "";

	/* closed: an answer found the guest's reply index spoilt; others of its processes must not suffer for good */
	if (!control->control || vg_lane_closing(control))
		return reset(server);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct vg_call call;
		int got = vg_ring_take(control, &call, &text);

		if (!got)
			break;
		if (got > 0) {
			text = "a control message that cannot be";
			got = vg_control_frame(control, &call);
			vg_ring_release(&control->submit);
		}
		if (got < 0) {
			vg_violation(control, text);
			return reset(server);
		}
	}
}

/* An agent that comes anew goes on from where they stand: with others it might never be heard. */
void vg_control_publish(struct vg_server *server)
{
	struct vg_lane *lane = &server->control_ring;

	vg_ring_release(&lane->submit);
	vg_store64(lane->reply.head, lane->reply.mine);
	vg_store32(&lane->control->parked, 1);
	vg_store64(&lane->control->life, lane->generation);
}
