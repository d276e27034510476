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
		vg_send_all(fd, &request, i % 3 * 30);
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
		refused += raw_open_as(&raw, VG_WIRE_VERSION + 1 + (uint32_t)i, "other") == -EPROTO;
		raw_close(&raw);
	}
	printf("tried %lu refused %lu\n", count, refused);
	return 0;
}

/* An interface of rising ids, then what is wrong with it. */
static void claim(struct raw *raw, unsigned variant)
{
	uint64_t words[VG_OPERATIONS_MAX + 1];
	struct vg_frame_header header = { .length = VG_ALIGN + 8 * 100, .op = VG_OP_INTERFACE, .sequence = 1,
					  .flags = VG_WANTS_REPLY };

	for (unsigned i = 0; i <= VG_OPERATIONS_MAX; i++)
		words[i] = (uint64_t)(i + 1) << VG_ID_SHIFT | i;
	if (variant == 0)
		header.length = VG_ALIGN + (uint32_t)sizeof(words);
	if (variant == 1)
		header.length = VG_ALIGN;
	if (variant == 2)
		header.length -= 4;
	if (variant == 3)
		words[50] = words[49] + 1;
	if (variant == 4)
		words[0] = 5;
	if (variant == 5)
		header.flags = 0;
	if (variant == 6) { /* one is right, two are not */
		raw_send(raw, &header, words, 100);
		header.sequence = 2;
	}
	raw_send(raw, &header, words, (header.length - VG_ALIGN + 7) / 8);
}

int wrong_interface(unsigned long count)
{
	return refuse_each(claim, 7, count);
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
		if (raw_open_as(&raw, VG_WIRE_VERSION, name)) {
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

enum { UNIT = 2 << 20, UNITS = 4 };

/* Reserves addresses and maps memory to the second unit of them. */
static int make_mapping(struct raw *raw, uint64_t *space, uint64_t *memory)
{
	static struct raw_reply reply;

	*memory = vg_handle_make(VG_TAG_PHYSICAL, 1, 0);
	if (raw_post(raw, VG_OP_virtual_reserve, VG_WANTS_REPLY, (uint64_t[]){ UNITS * UNIT, 0, 0 }, 3) < 0 ||
	    raw_next(raw, &reply, END_MS) || reply.header.status)
		return -1;
	memcpy(space, reply.data, sizeof(*space));
	return raw_call(raw, VG_OP_virtual_create, (uint64_t[]){ *memory, UNIT, 0 }, 3) ||
	       raw_call(raw, VG_OP_virtual_map, (uint64_t[]){ *space + UNIT, UNIT, *memory }, 3);
}

/* What is not mapped as a whole, not reserved, mapped already, of the worker's own, or goes round. */
static uint64_t forge_place(uint64_t space, uint64_t *bytes)
{
	const uint64_t odd = 4096 * (1 + roll() % (UNIT / 4096 - 1));
	const struct {
		uint64_t address, bytes;
	} forms[] = {
		{ space + UNIT, 2 * UNIT },       { space, 2 * UNIT },          { space + UNIT + odd, UNIT - odd },
		{ space + UNIT, odd },            { space + UNIT, 0 },          { space + UNIT, -UNIT },
		{ space + UNITS * UNIT, UNIT },   { space - UNIT, 2 * UNIT },   { space + UNIT, ~0ull - space },
		{ roll() % (1ull << 47), UNIT },  { (uintptr_t)&forms, UNIT },  { space + 3 * UNIT, 2 * UNIT },
	};
	size_t at = roll() % (sizeof(forms) / sizeof(forms[0]));

	*bytes = forms[at].bytes;
	return forms[at].address;
}

/* Mappings that a program may not make, open or end. Afterwards what was mapped is there, and nothing else. */
int forged_mappings(unsigned long count)
{
	uint64_t space, memory, bytes, address, other;
	unsigned long accepted = 0;
	struct raw raw;

	if (raw_open(&raw) || make_mapping(&raw, &space, &memory)) {
		printf("no mapping\n");
		return 1;
	}
	for (unsigned long i = 0; i < count; i++) {
		address = forge_place(space, &bytes);
		other = vg_handle_make(VG_TAG_PHYSICAL, 1 + roll() % 9, 1 + roll() % 4096); /* another kind is a violation */
		accepted += !raw_call(&raw, VG_OP_virtual_map, (uint64_t[]){ address, bytes, memory }, 3);
		accepted += !raw_call(&raw, VG_OP_virtual_map, (uint64_t[]){ space, UNIT, other }, 3);
		accepted += !raw_call(&raw, VG_OP_virtual_access, (uint64_t[]){ address, bytes, 0, 1 }, 4);
		if (raw_post(&raw, VG_OP_virtual_unmap, 0, (uint64_t[]){ address, bytes }, 2) < 0 ||
		    raw_post(&raw, VG_OP_virtual_free, 0, (uint64_t[]){ roll() % 2 ? address : space, UNITS * UNIT }, 2) < 0 ||
		    raw_post(&raw, VG_OP_virtual_release, 0, &other, 1) < 0) {
			printf("lost after %lu\n", i);
			return 1;
		}
	}
	accepted += raw_call(&raw, VG_OP_virtual_access, (uint64_t[]){ space + UNIT, UNIT, 0, 1 }, 4) != 0;
	accepted += raw_call(&raw, VG_OP_virtual_map, (uint64_t[]){ space, UNIT, memory }, 3) != 0;
	printf("forged %lu accepted %lu\n", count, accepted);
	raw_close(&raw);
	return 0;
}

/* Arrays of 8 by 4 floats and of 2 levels; copies beyond them, of others and of what was never made, and textures of addresses. */
int forged_arrays(unsigned long count)
{
	const uint64_t context = vg_handle_make(VG_TAG_CONTEXT, 1, 0), array = vg_handle_make(VG_TAG_ARRAY, 1, 0);
	const uint64_t mipmap = vg_handle_make(VG_TAG_MIPMAP, 1, 0), level = vg_handle_make(VG_TAG_ARRAY, 1, 1);
	unsigned long accepted = 0;
	uint32_t slot = 2;
	struct raw raw;

	if (raw_open(&raw) || raw_call(&raw, VG_OP_context_create, (uint64_t[]){ context, 0, 0, 0 }, 4) ||
	    raw_call(&raw, VG_OP_array_create, (uint64_t[]){ context, array, 8, 4, 0, 0x20, 1, 0 }, 8) ||
	    raw_call(&raw, VG_OP_mipmap_create, (uint64_t[]){ context, mipmap, 8, 4, 0, 0x20, 1, 0, 2 }, 9) ||
	    raw_call(&raw, VG_OP_mipmap_level, (uint64_t[]){ context, level, mipmap, 1 }, 4)) {
		printf("no arrays\n");
		return 1;
	}
	for (unsigned long i = 0; i < count; i++) {
		const uint64_t far = 1 + (roll() >> roll() % 64), other = vg_handle_make(VG_TAG_ARRAY, 2 + roll() % 9, roll() % 4096);
		const struct {
			uint64_t to, x, y, z, from, width, rows, slices;
		} forms[] = {
			{ array, far < 1ull << 60 ? 28 + 4 * far : 32, 0, 0, array, 4, 1, 1 },
			{ array, 0, 3 + (far < 1ull << 60 ? far : 1), 0, array, 4, 1, 1 },
			{ array, 0, 0, far, array, 4, 1, 1 },	      { array, 0, 0, 0, level, 32, 1, 1 },
			{ array, 0, 0, 0, array, 32, 4 + far % 9 + 1, 1 }, { array, 0, 0, 0, array, 32, 4, 1 + far },
			{ array, 2, 0, 0, array, 4, 1, 1 },	      { array, 0, 0, 0, array, 6, 1, 1 },
			{ other, 0, 0, 0, array, 4, 1, 1 },	      { array, -4, 0, 0, array, 8, 1, 1 },
		};
		const uint64_t at = roll() % (sizeof(forms) / sizeof(forms[0]));
		const uint64_t linear[25] = { vg_handle_make(VG_TAG_TEXTURE, 1, (uint32_t)(i % 4096)), 2, 0, 0, roll() & ~511ull,
					      4096, 0, 0, 0, 0x20, 1 };
		uint64_t texture[26] = { context };

		memcpy(texture + 1, linear, sizeof(linear));
		if (raw_post(&raw, VG_OP_copy_arrays, 0,
			     (uint64_t[]){ context, forms[at].to, forms[at].x, forms[at].y, forms[at].z, forms[at].from, 0, 0, 0,
					   forms[at].width, forms[at].rows, forms[at].slices, 0 }, 13) < 0) {
			printf("lost after %lu\n", i);
			return 1;
		}
		/* tells what the copy came to: a level that there is not is a question of its own */
		accepted += !raw_call(&raw, VG_OP_cuCtxSynchronize, &context, 1);
		texture[1] = vg_handle_make(VG_TAG_TEXTURE, (uint32_t)(1 + i / 4096), (uint32_t)(i % 4096));
		accepted += !raw_call(&raw, VG_OP_texture_create, texture, 26);
		accepted += !raw_call(&raw, VG_OP_mipmap_level,
				      (uint64_t[]){ context, vg_handle_make(VG_TAG_ARRAY, 1, slot++), mipmap, 2 + (uint32_t)far }, 4);
	}
	accepted += raw_call(&raw, VG_OP_array_create, (uint64_t[]){ context, vg_handle_make(VG_TAG_ARRAY, 1, slot), 8, 4, 0, 0x20, 1, 0 }, 8) != 0;
	printf("forged %lu accepted %lu\n", count, accepted);
	raw_close(&raw);
	return 0;
}
