/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame decoder under random bytes, without processes: rings and serial bodies of a lane in this process's memory,
 * meant to be built with ASan and UBSan. usage: vgpumgr-test-fuzz SEED ROUNDS; or "kept" and what tests/fuzz/kept.h says.
 * Built with -fsanitize=fuzzer and VG_LIBFUZZER, it is a libFuzzer target.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../vgpumgr/virtio/native/transport/worker.h"
#include "../../fuzz/kept.h"

enum { RING = 65536, WINDOW = 4096 };

static unsigned accepted, refused;

/* The decoder's surroundings: nothing else of the worker is linked. */
void vg_violation(struct vg_lane *lane, const char *text)
{
	(void)lane, (void)text;
}

void vg_lane_close(struct vg_lane *lane)
{
	vg_store32(&lane->words->closing, 1);
}

bool vg_lane_closing(const struct vg_lane *lane)
{
	return vg_load32(&lane->words->closing);
}

int vg_serial_send(struct vg_lane *lane, uint32_t kind, const void *a, size_t a_length, const void *b, size_t b_length)
{
	(void)lane, (void)kind, (void)a, (void)a_length, (void)b, (void)b_length;
	return 0;
}

static uint64_t sum(const volatile uint8_t *bytes, size_t length)
{
	uint64_t total = 0;

	for (size_t i = 0; i < length; i++)
		total += bytes[i];
	return total;
}

/* What every worker does with an accepted call: reads all it was given, fills all it may, answers. */
static void use(struct vg_lane *lane, const struct vg_call *call)
{
	static volatile uint64_t sink;

	assert(call->payload_length <= VG_PAYLOAD_RING_MAX);
	sink += sum(call->payload, call->payload_length);
	sink += sum(call->bulk_in, call->bulk_in_length);
	if (call->bulk_out)
		memset(call->bulk_out, 7, call->bulk_out_length);
	if (call->wants_reply && call->sequence % 3)
		vg_answer(lane, call->sequence, 0, call->payload, call->payload_length, call->bulk_out_length);
	accepted++;
}

/* Mostly all of them; a guest may also read none, or say that it has read what there is not. */
static void read_replies(struct vg_control *control, uint32_t op)
{
	uint64_t head = vg_load64(&control->reply_head);

	if (op % 64 == 1)
		vg_store64(&control->reply_tail, head + op);
	else if (op % 8)
		vg_store64(&control->reply_tail, head);
}

static void try_ring(const uint8_t *bytes, size_t size)
{
	struct vg_lane_words words = { 0 };
	struct vg_lane *lane = calloc(1, sizeof(*lane));
	struct vg_control *control = aligned_alloc(128, sizeof(*control));
	uint8_t *submit = malloc(RING), *reply = malloc(RING), *window = malloc(WINDOW);
	uint64_t head = 0;
	const char *text;
	int got = 0;

	memset(control, 0, sizeof(*control));
	memset(submit, 0x41, RING);
	memcpy(&head, bytes, size < 8 ? size : 8);
	bytes += size < 8 ? size : 8;
	size -= size < 8 ? size : 8;
	memcpy(submit, bytes, size < RING ? size : RING);
	lane->words = &words;
	lane->ring = true;
	lane->window = window;
	lane->window_size = WINDOW;
	vg_ring_init(&lane->submit, submit, RING, &control->submit_head, &control->submit_tail);
	vg_ring_init(&lane->reply, reply, RING, &control->reply_head, &control->reply_tail);
	vg_store64(&control->submit_head, head % 2 ? head : head % (RING + 64));
	for (unsigned i = 0; i < 3000 && !vg_lane_closing(lane); i++) {
		struct vg_call call;

		got = vg_ring_take(lane, &call, &text);
		if (got <= 0)
			break;
		use(lane, &call);
		read_replies(control, call.op);
	}
	refused += got < 0;
	vg_pending_drop(lane);
	free(window);
	free(reply);
	free(submit);
	free(control);
	free(lane);
}

static void try_serial(const uint8_t *bytes, size_t size)
{
	struct vg_lane_words words = { 0 };
	struct vg_lane *lane = calloc(1, sizeof(*lane));
	struct vg_frame_header header;
	struct vg_call call;
	const char *text;

	lane->words = &words;
	while (size >= sizeof(header)) {
		size_t length;

		memcpy(&header, bytes, sizeof(header));
		length = header.length % (size + 1);
		if (length < sizeof(header))
			length = sizeof(header);
		header.length = (uint32_t)length; /* the stream's framing has checked it */
		lane->bulk_filled = header.bulk_length % (VG_SERIAL_BULK_MAX + 1);
		lane->bulk = calloc(1, lane->bulk_filled + 1);
		if (length <= VG_BODY_MAX) {
			memcpy(lane->payload, bytes + sizeof(header), length - sizeof(header));
			if (vg_frame_accept(lane, &header, &call, &text))
				refused++;
			else
				use(lane, &call);
		}
		free(lane->bulk);
		lane->bulk = NULL;
		bytes += length;
		size -= length;
	}
	vg_pending_drop(lane);
	free(lane);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	try_ring(bytes, size);
	try_serial(bytes, size);
	return 0;
}

#ifndef VG_LIBFUZZER
/* Half of the headers are nearly right, or none would get past the first check. */
static size_t make_input(uint8_t *bytes, size_t room)
{
	static const uint32_t valid[] = { 0, VG_WANTS_REPLY, VG_HAS_BULK_IN, VG_WANTS_REPLY | VG_HAS_BULK_OUT };
	size_t at = 8;
	uint64_t head;

	for (size_t i = 0; i < room; i++)
		bytes[i] = (uint8_t)rand();
	while (at + 600 < room && rand() % 50) {
		struct vg_frame_header header = {
			.length = VG_ALIGN + (uint32_t)(rand() % 500),
			.op = (uint32_t)rand(),
			.sequence = (uint32_t)rand(),
			.flags = valid[rand() % 4],
			.bulk_offset = rand() % 20 ? (uint32_t)(rand() % 2000) : (uint32_t)rand(),
			.bulk_length = rand() % 20 ? (uint32_t)(rand() % 2000) : (uint32_t)rand(),
		};

		if (!(header.flags & 6))
			header.bulk_length = header.bulk_offset = 0;
		memcpy(bytes + at, &header, sizeof(header));
		if (rand() % 20 == 0)
			bytes[at + (size_t)(rand() % 32)] ^= (uint8_t)(1 << rand() % 8);
		at += vg_aligned(header.length);
	}
	head = (at - 8) / VG_ALIGN * VG_ALIGN;
	if (rand() % 10)
		memcpy(bytes, &head, sizeof(head));
	return at;
}

static size_t make_seeded(uint64_t seed, uint8_t *bytes, size_t room)
{
	srand((unsigned)seed);
	return make_input(bytes, room < RING ? room : RING);
}

int main(int argc, char **argv)
{
	static uint8_t bytes[RING];
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;

	if (argc > 1 && !strcmp(argv[1], "kept"))
		return kept_main(argc - 2, argv + 2, make_seeded);
	srand(argc > 1 ? (unsigned)atoi(argv[1]) : 1);
	for (unsigned i = 0; i < rounds; i++)
		LLVMFuzzerTestOneInput(bytes, make_input(bytes, (size_t)(rand() % RING / 2 + 1024)));
	printf("accepted %u refused %u\n", accepted, refused);
	return 0;
}
#endif
