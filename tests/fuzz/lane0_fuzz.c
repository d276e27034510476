/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's end of lane 0 on the ring: what a guest that maps the whole window writes there. An input is a tape (window.h): it
 * says which control frames the guest writes, what it changes beside them, and which of the server's accesses find a
 * change. At the end, whatever was done, an agent that keeps to the wire format must be greeted and get a lane.
 * Usage: lane0_fuzz SEED ROUNDS, where another thread changes the memory as well; lane0_fuzz found pads, which was found
 * once; or "kept" and what kept.h says.
 * With VG_LIBFUZZER and -fsanitize=fuzzer it is a libFuzzer target.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../vgpumgr/virtio/native/transport/util.h"
#include "kept.h"
#include "server.h"
#include "window.h"

enum { KNOWN = 16, END_TURNS = 400, TURN_MS = 10 };

static unsigned long greeted, opened, reserved, claimed, violations, healed;

/* The guest's end of lane 0, and lanes that it has been given. */
static struct {
	struct vg_ring submit, reply;
	uint64_t life;
	uint32_t counter;
	uint32_t op[VG_SLOTS];
	uint32_t last_op;
	int32_t last_status;
	struct vg_opened known[KNOWN], reserved;
	unsigned known_count;
} guest;

static struct vg_control *lane0(void)
{
	return vg_lane_at(window.memory, &window.layout, 0);
}

static void join(void)
{
	struct vg_control *control = lane0();
	uint8_t *base = (uint8_t *)control + VG_PAGE;

	vg_ring_init(&guest.submit, base, VG_CONTROL_RING, &control->submit_head, &control->submit_tail);
	vg_ring_init(&guest.reply, base + VG_CONTROL_RING, VG_CONTROL_RING, &control->reply_head, &control->reply_tail);
	guest.submit.mine = guest.submit.theirs = vg_load64(&control->submit_tail) & ~(uint64_t)(VG_ALIGN - 1);
	guest.reply.mine = vg_load64(&control->reply_head) & ~(uint64_t)(VG_ALIGN - 1);
	guest.life = vg_load64(&control->life);
	vg_ring_release(&guest.reply);
}

static void put_frame(uint32_t op, uint32_t flags, const void *payload, size_t length)
{
	struct vg_frame_header header = { .length = VG_ALIGN + (uint32_t)length, .op = op, .flags = flags };
	uint32_t slot = guest.counter++ % VG_SLOTS;
	uint8_t *place;

	header.sequence = guest.counter / VG_SLOTS * VG_SLOTS + slot;
	if (vg_ring_room(&guest.submit, header.length))
		return join();
	guest.op[slot] = op;
	place = vg_ring_place(&guest.submit, header.length);
	vg_copy_out(place + VG_ALIGN, payload, length);
	vg_copy_out(place, &header, sizeof(header));
	vg_ring_publish(&guest.submit, header.length);
}

/* What an answer says is remembered, and believed. */
static void take_reply(const struct vg_reply_header *header, const void *data)
{
	struct vg_opened given;

	guest.last_op = guest.op[header->sequence % VG_SLOTS];
	guest.last_status = header->status;
	if (header->status)
		return;
	greeted += guest.last_op == VG_CONTROL_HELLO;
	opened += guest.last_op == VG_CONTROL_OPEN;
	reserved += guest.last_op == VG_CONTROL_RESERVE;
	claimed += guest.last_op == VG_CONTROL_CLAIM;
	if (header->length != VG_ALIGN + sizeof(given))
		return;
	memcpy(&given, data, sizeof(given));
	guest.known[guest.known_count++ % KNOWN] = given;
	if (guest.last_op == VG_CONTROL_RESERVE)
		guest.reserved = given;
}

static bool read_reply(void)
{
	uint8_t data[VG_CONTROL_RING];
	struct vg_reply_header header;
	int error = -EAGAIN;

	while (error == -EAGAIN) {
		if (vg_ring_waiting(&guest.reply) <= 0)
			return false;
		error = vg_ring_next(&guest.reply, &header);
	}
	if (error || header.length > sizeof(data)) {
		join();
		return false;
	}
	memcpy(data, vg_ring_payload(&guest.reply), header.length - VG_ALIGN);
	vg_ring_consume(&guest.reply, header.length);
	vg_ring_release(&guest.reply);
	take_reply(&header, data);
	return true;
}

/* ---- control frames, mostly as they must be ---- */

static void say_hello(void)
{
	struct vg_hello hello = { .version = roll(12) ? VG_WIRE_VERSION : 7 };

	memset(hello.agent, 'a', sizeof(hello.agent)); /* without an end */
	put_frame(VG_CONTROL_HELLO, VG_WANTS_REPLY, &hello, sizeof(hello));
}

static struct vg_close pick_lane(void)
{
	const struct vg_opened *known = &guest.known[roll(KNOWN)];
	struct vg_close lane = { .lane = known->lane, .generation = known->generation };

	if (!roll(6))
		lane.lane = (uint32_t)roll(VG_LANE_TABLE + 3) - 1;
	if (!roll(8))
		lane.generation = roll(4);
	return lane;
}

static void claim(void)
{
	struct vg_claim claim = { .lane = pick_lane(), .open = { .pid = (uint32_t)roll(1000) } };

	if (roll(4))
		claim.lane = (struct vg_close){ .lane = guest.reserved.lane, .generation = guest.reserved.generation };
	memset(claim.open.name, 'n', sizeof(claim.open.name));
	put_frame(VG_CONTROL_CLAIM, VG_WANTS_REPLY, &claim, sizeof(claim));
}

static void say_interface(void)
{
	static uint64_t words[VG_OPERATIONS_MAX + 2];
	uint64_t id = roll(20) ? 1 : 0, count = roll(12) ? 1 + roll(60) : roll(VG_OPERATIONS_MAX + 3);

	for (uint64_t i = 0; i < count; i++, id += roll(100) ? 1 + roll(2) : 0)
		words[i] = id << VG_ID_SHIFT | (roll(3) ? 7 : roll(1 << 20));
	put_frame(VG_OP_INTERFACE, roll(20) ? VG_WANTS_REPLY : 0, words, (roll(20) ? 8 : 5) * count);
}

static void put_anything(void)
{
	static uint8_t bytes[VG_CONTROL_RING];

	put_frame((uint32_t)roll(9), roll(3) ? VG_WANTS_REPLY : (uint32_t)roll(16), bytes, roll(roll(4) ? 200 : 5000));
}

static void put_control(void)
{
	struct vg_open open = { .pid = (uint32_t)roll(1000) };
	struct vg_close lane;

	switch (roll(17)) {
	case 0:
		return say_hello();
	case 1:
	case 2:
		lane = pick_lane();
		return put_frame(VG_CONTROL_CLOSE, VG_WANTS_REPLY, &lane, sizeof(lane));
	case 3:
	case 4:
		return put_frame(VG_CONTROL_RESERVE, VG_WANTS_REPLY, &open, sizeof(open));
	case 5:
	case 6:
		return claim();
	case 7:
		return say_interface();
	case 8:
		return put_anything();
	default:
		memset(open.name, 'n', sizeof(open.name));
		return put_frame(VG_CONTROL_OPEN, VG_WANTS_REPLY, &open, sizeof(open));
	}
}

/* ---- a tape ---- */

static void turn(void)
{
	uint64_t before = vg_load64(&server.stats->violations);

	clock_advance(TURN_MS);
	server_turn();
	violations += vg_load64(&server.stats->violations) - before;
}

static void begin_again(void)
{
	server_end();
	server_begin();
}

static void happen(void)
{
	switch (roll(10)) {
	case 0:
		return server_refuse_sessions(roll(4) == 1);
	case 1:
		return clock_advance(roll(1000));
	case 2:
		return server_end_sessions(roll(2));
	case 3:
		return window_follow(roll(3) ? NULL : &server.control_ring.submit, &server.memory, roll(2));
	case 4:
		return roll(8) ? join() : begin_again();
	case 5:
		return window_spoil();
	default:
		return window_arm();
	}
}

/* As the agent does, when the server has begun anew; mostly. */
static void greet_again(void)
{
	if (guest.life == vg_load64(&lane0()->life) || !roll(8))
		return;
	join();
	say_hello();
}

static void step(void)
{
	switch (roll(10)) {
	case 0:
		return happen();
	case 1:
		while (read_reply())
			continue;
		return;
	case 2:
	case 3:
		return turn();
	default:
		greet_again();
		put_control();
	}
}

/* ---- the end: an agent that keeps to the format ---- */

static bool is_answered(uint32_t op)
{
	guest.last_op = 0;
	for (unsigned i = 0; i < END_TURNS && guest.life == vg_load64(&lane0()->life); i++) {
		turn();
		server_end_sessions(false);
		while (read_reply())
			if (guest.last_op == op && !guest.last_status)
				return true;
	}
	return false;
}

static bool gets_a_lane(void)
{
	struct vg_hello hello = { .version = VG_WIRE_VERSION };
	struct vg_open open = { .pid = 7 };

	join();
	if (!guest.life)
		return false;
	put_frame(VG_CONTROL_HELLO, VG_WANTS_REPLY, &hello, sizeof(hello));
	if (!is_answered(VG_CONTROL_HELLO))
		return false;
	put_frame(VG_CONTROL_OPEN, VG_WANTS_REPLY, &open, sizeof(open));
	return is_answered(VG_CONTROL_OPEN);
}

static void end_well(void)
{
	window_rest();
	server_refuse_sessions(false);
	for (unsigned i = 0; i < 8; i++) {
		turn();
		server_end_sessions(false);
		if (gets_a_lane()) {
			healed++;
			return;
		}
	}
	fprintf(stderr, "an agent at the end gets no lane\n");
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	memset(&guest, 0, sizeof(guest));
	clock_set(true);
	if (!window_make(WINDOW_SIZE))
		return 0;
	tape_begin(bytes, size);
	server_begin();
	turn();
	join();
	say_hello();
	while (!tape_has_ended())
		step();
	end_well();
	server_end();
	window_free();
	return 0;
}

#ifndef VG_LIBFUZZER
/* ---- what was found once ---- */

/* One who writes as fast as the server reads: pad after pad. */
static int follow_with_pads(void)
{
	if (!window_make(WINDOW_SIZE))
		return 2;
	clock_set(true);
	tape_begin(NULL, 0);
	server_begin();
	turn();
	window_follow(&server.control_ring.submit, &server.memory, true);
	turn();
	end_well();
	return vg_load64(&server.stats->violations) ? 0 : 1;
}

/* ---- another thread of the guest ---- */

static _Atomic bool stop;

static void *change(void *unused)
{
	uint64_t noise = 88172645463325252ull;
	vg_word64 *words = (vg_word64 *)(window.memory + VG_CONTROL_OFFSET);

	while (!atomic_load(&stop)) {
		noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
		if (noise % 64 < 40) /* the rings; seldom the words, which end everything */
			vg_store64(&words[VG_PAGE / 8 + (noise >> 20) % (2 * VG_CONTROL_RING / 8)], noise >> noise % 64);
		else if (noise % 64 == 40)
			vg_store64(&words[(noise >> 20) % 6 * 16], noise >> 32 & 0xffe0);
		usleep(noise % 4);
	}
	return unused;
}

static void run_a_tape(uint64_t seed)
{
	static uint8_t tape[TAPE_MAX];

	LLVMFuzzerTestOneInput(tape, make_tape(seed, tape, sizeof(tape)));
}

static void run_with_a_thread(uint64_t seed, unsigned steps)
{
	pthread_t thread;

	memset(&guest, 0, sizeof(guest));
	if (!window_make(WINDOW_SIZE))
		exit(2);
	tape_begin(NULL, 0);
	seed_with(seed);
	server_begin();
	turn();
	join();
	say_hello();
	stop = false;
	if (pthread_create(&thread, NULL, change, NULL))
		exit(2);
	for (unsigned i = 0; i < steps; i++)
		step();
	stop = true;
	pthread_join(thread, NULL);
	end_well();
	server_end();
	window_free();
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	if (argc > 1 && !strcmp(argv[1], "kept"))
		return kept_main(argc - 2, argv + 2, make_tape);
	if (argc > 2 && !strcmp(argv[1], "found") && !strcmp(argv[2], "pads"))
		return follow_with_pads();
	for (unsigned long i = 0; i < rounds; i++)
		run_a_tape(seed * 1000000 + i);
	for (unsigned long i = 0; i < rounds / 20; i++)
		run_with_a_thread(seed * 1000 + i, 2000);
	printf("%lu greeted, %lu opened, %lu reserved, %lu claimed, %lu violations, %lu healed\n", greeted, opened, reserved,
	       claimed, violations, healed);
	return 0;
}
#endif
