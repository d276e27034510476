/* SPDX-License-Identifier: Apache-2.0 */
/* A worker without a GPU: echoes, counts, checks patterns, and misbehaves when asked. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echo.h"
#include "transport/worker.h"

struct session {
	uint64_t count;
	bool holding;
	uint32_t held;
	uint8_t *device;
};

static int open_session(struct vg_lane *lane, const struct vg_peer *peer, void **out)
{
	struct session *session;

	(void)lane;
	if (!strcmp(peer->name, "refused"))
		return -EACCES;
	session = calloc(1, sizeof(*session));
	if (session)
		session->device = malloc(ECHO_DEVICE);
	*out = session;
	return session && session->device ? 0 : -ENOMEM;
}

static void close_session(void *argument)
{
	struct session *session = argument;

	if (!getenv("VGPUMGR_TEST_LEAK"))
		free(session->device);
	free(session);
}

static uint64_t number(const struct vg_call *call)
{
	uint64_t value = 0;

	memcpy(&value, call->payload, call->payload_length < 8 ? call->payload_length : 8);
	return value;
}

static int answer(struct vg_lane *lane, const struct vg_call *call, int status, const void *data, size_t length,
		  size_t bulk)
{
	if (call->wants_reply)
		vg_answer(lane, call->sequence, status, data, length, bulk);
	return 0;
}

static int check_bulk(struct vg_lane *lane, const struct vg_call *call)
{
	const uint8_t *bulk = call->bulk_in;
	int status = 0;

	for (size_t i = 0; i < call->bulk_in_length; i++)
		status |= bulk[i] != echo_pattern(number(call), i);
	return answer(lane, call, status, NULL, 0, 0);
}

static int fill_bulk(struct vg_lane *lane, const struct vg_call *call)
{
	uint8_t *bulk = call->bulk_out;

	for (size_t i = 0; i < call->bulk_out_length; i++)
		bulk[i] = echo_pattern(number(call), i);
	return answer(lane, call, 0, NULL, 0, call->bulk_out_length);
}

static int copy_bulk(struct session *session, struct vg_lane *lane, const struct vg_call *call)
{
	uint64_t offset = number(call), length = call->bulk_in_length + call->bulk_out_length;

	if (offset > ECHO_DEVICE || length > ECHO_DEVICE - offset)
		return -EPROTO;
	if (call->bulk_in)
		memcpy(session->device + offset, call->bulk_in, length);
	if (call->bulk_out)
		memcpy(call->bulk_out, session->device + offset, length);
	return answer(lane, call, 0, NULL, 0, call->bulk_out_length);
}

static int hold(struct session *session, struct vg_lane *lane, const struct vg_call *call)
{
	if (call->op == ECHO_HOLD) {
		session->held = call->sequence;
		session->holding = true;
		return 0;
	}
	answer(lane, call, session->holding, NULL, 0, 0);
	if (session->holding)
		vg_answer(lane, session->held, 7, NULL, 0, 0);
	session->holding = false;
	return 0;
}

static int block(struct vg_lane *lane)
{
	while (!vg_lane_closing(lane))
		usleep(1000);
	return 0;
}

static int shout(void)
{
	char line[180];

	memset(line, 'y', sizeof(line));
	for (int i = 0; i < 1000; i++)
		fprintf(stderr, "%.*s\n", (int)sizeof(line), line);
	abort();
}

/* As one that was taken over: beyond its own row of the page of numbers, up to the next row's end. */
static int forge(struct vg_lane *lane)
{
	struct vg_lane_stats *own = lane->stats;

	memset((char *)own + offsetof(struct vg_lane_stats, name), 'n', sizeof(own->name) + sizeof(*own));
	abort();
}

static bool strict;

static int call(void *argument, struct vg_lane *lane, const struct vg_call *call)
{
	static const uint8_t large[VG_PAYLOAD_RING_MAX];
	struct session *session = argument;

	/* no guest has these alike, if its interface is not the worker's */
	if (strict && !echo_is_common(call->op))
		return -EPROTO;
	switch (call->op) {
	case ECHO_NULL:
		return answer(lane, call, 0, NULL, 0, 0);
	case ECHO_ECHO:
		return answer(lane, call, 0, call->payload, call->payload_length, 0);
	case ECHO_COUNT:
		return number(call) == ++session->count ? 0 : -EPROTO;
	case ECHO_QUERY:
		return answer(lane, call, 0, &session->count, sizeof(session->count), 0);
	case ECHO_BULK_IN:
		return check_bulk(lane, call);
	case ECHO_BULK_OUT:
		return fill_bulk(lane, call);
	case ECHO_HOLD:
	case ECHO_RELEASE:
		return hold(session, lane, call);
	case ECHO_BLOCK:
		return block(lane);
	case ECHO_CRASH:
		abort();
	case ECHO_SHOUT:
		return shout();
	case ECHO_FORGE:
		return forge(lane);
	case ECHO_STORE:
	case ECHO_LOAD:
		return copy_bulk(session, lane, call);
	case ECHO_ACCOUNT:
		vg_lane_account(lane, number(call));
		return answer(lane, call, 0, NULL, 0, 0);
	case ECHO_LARGE:
		return answer(lane, call, 0, large, sizeof(large), 0);
	default:
		return -EPROTO;
	}
}

/* Session arguments: --fail MESSAGE, --die */
static int start(int argc, char **argv, char *message, size_t size)
{
	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "--fail")) {
			snprintf(message, size, "%s", argv[i + 1]);
			return -ENODEV;
		}
		if (!strcmp(argv[i], "--die"))
			_exit(3);
	}
	return 0;
}

/* Worker arguments: --interface N; --strict 1: what interfaces 1 and 2 do not share is a violation */
int main(int argc, char **argv)
{
	static struct vg_session_ops ops = {
		.start = start,
		.open = open_session,
		.call = call,
		.close = close_session,
	};
	const struct vg_interface *interface = echo_interface(1);
	const char *version = "1.0.0";

	for (int i = 1; i < argc; i++)
		ops.refuses |= !strcmp(argv[i], "--refuses");
	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "--interface")) {
			interface = echo_interface(atoi(argv[i + 1]));
			version = atoi(argv[i + 1]) == 1 ? "1.0.0" : "2.0.0";
		}
	}
	for (int i = 1; i + 1 < argc; i++)
		strict |= !strcmp(argv[i], "--strict");
	return vg_worker_serve(argc, argv, interface, version, &ops);
}
