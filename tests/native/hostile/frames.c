/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks below CUDA: frames, indices, doorbells, connections. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "attacks.h"
#include "raw.h"
#include "vg_ops.h"

enum { END_MS = 30000, IN_FLIGHT = 32 };

static const uint8_t ours[VG_HASH_SIZE] = VG_SCHEMA_HASH;

/* Does each variant so many times on a lane of its own, and counts the lanes that the host has ended. */
static int refuse_each(void (*spoil)(struct raw *raw, unsigned variant), unsigned variants, unsigned long rounds)
{
	unsigned long tried = 0, ended = 0;
	struct raw raw;

	for (unsigned long i = 0; i < rounds * variants; i++) {
		if (raw_open(&raw))
			return 1;
		spoil(&raw, (unsigned)(i % variants));
		tried++;
		if (raw_is_ended(&raw, END_MS))
			ended++;
		else
			printf("variant %lu was taken\n", i % variants);
		raw_close(&raw);
	}
	printf("tried %lu ended %lu\n", tried, ended);
	return 0;
}

static void send_length(struct raw *raw, uint32_t length)
{
	struct vg_frame_header header = { .length = length, .op = VG_OP_snapshot, .sequence = 1, .flags = VG_WANTS_REPLY };

	raw_send(raw, &header, NULL, 0);
}

static void too_long(struct raw *raw, unsigned variant)
{
	static const uint32_t lengths[] = { UINT32_MAX, 1u << 31, UINT32_MAX - 31, VG_BODY_MAX + 1, VG_ALIGN + 1 };

	send_length(raw, lengths[variant]);
}

int giant_length(unsigned long count)
{
	return refuse_each(too_long, 5, count);
}

static void too_short(struct raw *raw, unsigned variant)
{
	static const uint32_t lengths[] = { 0, 1, VG_ALIGN - 1 };

	send_length(raw, lengths[variant]);
}

int zero_length(unsigned long count)
{
	return refuse_each(too_short, 3, count);
}

/* The smallest frames there are, posted without a pause; then one that is answered. */
int tiny_frames(unsigned long count)
{
	static const uint64_t gate = 1ull << 40;
	uint64_t begun = vg_now_ms();
	struct raw raw;
	int status;

	if (raw_open(&raw))
		return 1;
	for (unsigned long i = 0; i < count; i++)
		if (raw_post(&raw, VG_OP_host_gate_open, 0, &gate, 1) < 0)
			return 1;
	status = raw_call(&raw, VG_OP_snapshot, NULL, 0);
	printf("posted %lu status %d ms %llu\n", count, status, (unsigned long long)(vg_now_ms() - begun));
	raw_close(&raw);
	return status < 0;
}

/* A frame of which only a part is there; then nothing for so many seconds. */
int half_a_frame(unsigned long seconds)
{
	struct vg_frame_header header = { .length = 4096, .op = VG_OP_snapshot, .sequence = 1, .flags = VG_WANTS_REPLY };
	struct vg_message message = { VG_MESSAGE_MAGIC, 0, VG_KIND_FRAME, 4096 };
	struct raw raw;

	if (raw_open(&raw))
		return 1;
	message.lane = raw.answer.lane;
	if (raw.ring)
		raw_send(&raw, &header, NULL, 0);
	else if (vg_send_all(raw.socket, &message, sizeof(message)) || vg_send_all(raw.socket, &header, sizeof(header)))
		return 1;
	printf("half a frame\n");
	printf("ended %d\n", raw_is_ended(&raw, (unsigned)seconds * 1000));
	raw_close(&raw);
	return 0;
}

/* So many connections to the agent that ask for nothing, or for half of something; then nothing. */
int silent_clients(unsigned long count)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };
	const char *path = getenv("VGPUMGR_AGENT");

	for (unsigned long i = 0; i < count; i++) {
		int fd = vg_connect(path ? path : VG_AGENT_SOCKET);

		if (fd < 0)
			return 1;
		vg_send_all(fd, &request, i % 3 * 40);
	}
	printf("silent %lu\n", count);
	pause();
	return 0;
}

static void jump(struct raw *raw, unsigned variant)
{
	uint32_t size = raw->layout.submit_size;
	const uint64_t heads[] = { size + VG_ALIGN, 1, (uint64_t)-VG_ALIGN, UINT64_MAX, 1ull << 63, VG_ALIGN + 8 };
	static const uint64_t nothing[1];

	if (!raw->ring) { /* the stream's kin of it: more than there was credit for, and bulk that does not fit */
		struct vg_frame_header header = { .length = VG_ALIGN, .op = VG_OP_image_data, .sequence = variant,
						  .flags = VG_HAS_BULK_IN, .bulk_offset = variant % 2, .bulk_length = 1u << 30 };

		raw_send(raw, &header, nothing, 0);
		return;
	}
	vg_store64(&raw->control->submit_head, heads[variant]);
	raw_doorbell(raw);
}

int index_jump(unsigned long count)
{
	return refuse_each(jump, 6, count);
}

/* Ringing for so many milliseconds, with nothing to say; over serial, empty connections do the same to the agent. */
int doorbell_storm(unsigned long ms)
{
	uint64_t end = vg_now_ms() + ms;
	unsigned long rings = 0;
	struct raw raw;
	int status;

	if (raw_open(&raw))
		return 1;
	for (; vg_now_ms() < end; rings++)
		if (raw.ring)
			raw_doorbell(&raw);
		else if (raw_post(&raw, VG_OP_host_gate_open, 0, (uint64_t[]){ 1ull << 40 }, 1) < 0)
			return 1;
	status = raw_call(&raw, VG_OP_snapshot, NULL, 0);
	printf("rang %lu status %d\n", rings, status);
	raw_close(&raw);
	return status < 0;
}

/* Connections that end at once, after half a request, or just when a lane has been asked for. */
int churn(unsigned long count)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };
	const char *path = getenv("VGPUMGR_AGENT");

	memcpy(request.hash, ours, sizeof(ours));
	for (unsigned long i = 0; i < count; i++) {
		int fd = vg_connect(path ? path : VG_AGENT_SOCKET);

		if (fd < 0)
			return 1;
		if (i % 4)
			vg_send_all(fd, &request, i % 4 == 1 ? 50 : sizeof(request));
		if (i % 16 == 3)
			usleep(2000);
		close(fd);
	}
	printf("connected %lu\n", count);
	return 0;
}

int wrong_version(unsigned long count)
{
	unsigned long refused = 0;
	struct raw raw;

	for (unsigned long i = 0; i < count; i++) {
		uint8_t hash[VG_HASH_SIZE] = { [3] = (uint8_t)i };

		refused += raw_open_as(&raw, hash, "old") == -EPROTO;
		raw_close(&raw);
	}
	printf("tried %lu refused %lu\n", count, refused);
	return 0;
}

static void violate(struct raw *raw, unsigned variant)
{
	struct vg_frame_header header = { .length = VG_ALIGN, .op = 0xffff, .sequence = 1, .flags = VG_WANTS_REPLY };

	if (variant == 1)
		header = (struct vg_frame_header){ .length = VG_ALIGN, .op = VG_OP_snapshot, .sequence = 1, .flags = 0x70 };
	if (variant == 2) /* known, but its payload is missing */
		header.op = VG_OP_memory_allocate;
	raw_send(raw, &header, NULL, 0);
}

/* Everything that ends a session, as fast as sessions come. */
int violations(unsigned long count)
{
	return refuse_each(violate, 3, (count + 2) / 3);
}

/* Names that are lines of a log, and what ends a session, in turns. */
int names(unsigned long count)
{
	unsigned long ended = 0;
	struct raw raw;

	for (unsigned long i = 0; i < count; i++) {
		char name[32] = "\n\033[2Jworker: all is well\n%s%n";

		name[31] = (char)(i | 0x80);
		if (raw_open_as(&raw, ours, name)) {
			raw_close(&raw);
			usleep(5000);
			continue;
		}
		violate(&raw, (unsigned)(i % 3));
		ended += raw_is_ended(&raw, END_MS);
		raw_close(&raw);
	}
	printf("tried %lu ended %lu\n", count, ended);
	return !ended;
}

/* ---- handles that were not given ---- */

enum { OBJECTS = 16, GENERATION = 100, INVALID_HANDLE = 400 };

static uint64_t state = 88172645463325252ull;

static uint64_t roll(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return state;
}

static const uint32_t tags[] = { VG_TAG_STREAM, VG_TAG_EVENT };

static uint64_t given(unsigned kind, unsigned slot)
{
	return vg_handle_make(tags[kind], GENERATION + 2 * slot, slot);
}

static int make_objects(struct raw *raw, uint64_t *context)
{
	*context = vg_handle_make(VG_TAG_CONTEXT, GENERATION, 0);
	if (raw_call(raw, VG_OP_context_create, (uint64_t[]){ *context, 0, 0, 0 }, 4))
		return -1;
	for (unsigned i = 0; i < OBJECTS; i++) {
		const uint64_t stream[] = { *context, given(0, i), 0, 0 }, event[] = { *context, given(1, i), 0 };

		if (raw_post(raw, VG_OP_cuStreamCreateWithPriority, 0, stream, 4) < 0 ||
		    raw_post(raw, VG_OP_cuEventCreate, 0, event, 3) < 0)
			return -1;
	}
	/* what is in use is accepted, so that what is refused below is refused for its handle */
	return raw_call(raw, VG_OP_cuStreamQuery, (uint64_t[]){ *context, given(0, 3) }, 2);
}

/* With the right tag: another is a violation, which the fuzzers try. */
static uint64_t forge(unsigned kind)
{
	unsigned slot = (unsigned)(roll() % (2 * OBJECTS));
	uint64_t real = given(kind, slot % OBJECTS), handle;

	do {
		switch (roll() % 4) {
		case 0: /* before it, and after it */
			handle = vg_handle_make(tags[kind], (uint32_t)(vg_handle_generation(real) + roll() % 9 - 4), slot % OBJECTS);
			break;
		case 1: /* a slot that was never used */
			handle = vg_handle_make(tags[kind], (uint32_t)(1 + roll() % 200), OBJECTS + slot);
			break;
		case 2: /* its neighbour's generation */
			handle = vg_handle_make(tags[kind], GENERATION + 2 * slot, (slot + 1) % OBJECTS);
			break;
		default:
			handle = vg_handle_make(tags[kind], (uint32_t)(roll() % VG_HANDLE_GENERATION_MAX), (uint32_t)(roll() % 100000));
		}
	} while (vg_handle_slot(handle) < OBJECTS && handle == given(kind, vg_handle_slot(handle)));
	return handle;
}

int forged(unsigned long count)
{
	static const uint32_t queries[] = { VG_OP_cuStreamQuery, VG_OP_cuEventQuery };
	static const uint32_t waits[] = { VG_OP_cuStreamSynchronize, VG_OP_cuEventSynchronize };
	static struct raw_reply reply;
	unsigned long sent = 0, answered = 0, accepted = 0;
	uint64_t context;
	struct raw raw;

	if (raw_open(&raw) || make_objects(&raw, &context)) {
		printf("no objects\n");
		return 1;
	}
	while (answered < count) {
		unsigned kind = (unsigned)(roll() % 2);

		/* what may wait is answered in any order: one at a time */
		if (sent == answered) {
			accepted += raw_call(&raw, waits[kind], (uint64_t[]){ context, forge(kind) }, 2) != INVALID_HANDLE;
			sent++, answered++;
		}
		for (; sent < count && sent - answered < IN_FLIGHT; sent++)
			if (raw_post(&raw, queries[kind], VG_WANTS_REPLY, (uint64_t[]){ context, forge(kind) }, 2) < 0)
				break;
		if (answered == count)
			break;
		if (raw_next(&raw, &reply, END_MS)) {
			printf("lost after %lu\n", answered);
			return 1;
		}
		answered++;
		accepted += reply.header.status != INVALID_HANDLE;
	}
	printf("forged %lu accepted %lu\n", count, accepted);
	/* it was the same session all the time */
	answered = (unsigned long)raw_call(&raw, VG_OP_cuStreamQuery, (uint64_t[]){ context, given(0, 3) }, 2);
	raw_close(&raw);
	return answered != 0;
}
