/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's lane 0 in shared memory: an agent that asks for lanes, and processes of its guest that write over the lane's
 * words and rings. Usage: lane0_fuzz SEED ROUNDS, in which a thread writes too, at any moment; or "kept" and what kept.h says.
 * An input is a tape: the outcomes of all that is left to chance, one or two bytes each. The lanes are the server's real
 * ones; sessions have no processes. At the end an agent must be served, and no lane may be lost.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../vgpumgr/virtio/native/transport/util.h"
#include "../../vgpumgr/virtio/native/transport/worker.h"
#include "kept.h"

enum { MEMORY = 1 << 20, TAPE_MAX = 6 << 10, END_TURNS = 200, NONE = UINT32_MAX };

static _Alignas(4096) uint8_t memory[MEMORY];
static struct vg_server server;
static unsigned long greeted, opened, claimed, resets, spoilt;
static const uint64_t own[] = { 1ull << VG_ID_SHIFT | 7, 2ull << VG_ID_SHIFT | 7, 9ull << VG_ID_SHIFT | 7 };
static const struct vg_interface interface = { own, 3, { 1, 2, 3 } };
static struct vg_session_ops operations;

static const uint8_t *tape, *tape_end;

static uint64_t roll(uint64_t most)
{
	uint64_t value = 0;

	for (unsigned bytes = most > 256 ? 2 : 1; bytes; bytes--)
		value = value << 8 | (tape < tape_end ? *tape++ : 0);
	return value % most;
}

/* ---- sessions, without processes */

int vg_session_spawn(struct vg_server *s, struct vg_session *session)
{
	static pid_t last = 1000;

	(void)s;
	if (!roll(12))
		return -EAGAIN;
	*session = (struct vg_session){ .pid = ++last, .socket = -1, .errors = -1 };
	return 0;
}

int vg_stream_send(struct vg_server *s, uint32_t lane, uint32_t kind, const void *a, size_t a_length, const void *b,
		   size_t b_length)
{
	(void)s, (void)lane, (void)kind, (void)a, (void)a_length, (void)b, (void)b_length;
	abort(); /* of serial lanes only */
}

int vg_serial_send(struct vg_lane *lane, uint32_t kind, const void *a, size_t a_length, const void *b, size_t b_length)
{
	(void)lane, (void)kind, (void)a, (void)a_length, (void)b, (void)b_length;
	abort();
}

/* What the server does beside: sessions become ready, refuse, or have ended. */
static void live(bool fair)
{
	for (uint32_t i = 1; i <= server.layout.lane_count; i++) {
		struct vg_entry *entry = &server.entry[i];

		if (entry->state == LANE_CLOSING && (fair || roll(2)))
			vg_entry_free(&server, entry);
		else if (entry->state == LANE_OPEN && !entry->answered && (fair || !roll(3)))
			vg_entry_answer(&server, entry, fair || roll(4) ? 0 : -EACCES, "it refuses");
	}
	if (!server.spare.pid && (fair || !roll(3)))
		server.spare = (struct vg_session){ .pid = 999, .socket = -1, .errors = -1 };
	server.spare.ready = server.spare.pid && (fair || server.spare.ready || !roll(2));
	operations.refuses = !fair && !roll(50);
}

/* Whatever the guest does: no lane is there that is not, none is two processes'. */
static void check_lanes(void)
{
	for (uint32_t i = 1; i < VG_LANE_TABLE; i++) {
		struct vg_entry *entry = &server.entry[i];

		if (entry->state == LANE_FREE)
			continue;
		assert(i <= server.layout.lane_count && entry->ring && entry->number == i && entry->generation);
		for (uint32_t k = 1; k < i; k++)
			assert(server.entry[k].state == LANE_FREE || server.entry[k].generation != entry->generation);
	}
	assert(server.control_ring.submit.mine % VG_ALIGN == 0 && server.control_ring.reply.mine % VG_ALIGN == 0);
}

/* ---- the agent */

static struct agent {
	struct vg_control *control;
	struct vg_ring submit, reply;
	uint64_t life;
	uint32_t sequence, hello, asked;
	bool greeted;
	struct vg_opened lane;   /* the last that it got */
} agent;

/* As the agent begins: where the words stand. */
static void begin(void)
{
	uint8_t *base;

	agent = (struct agent){ .control = vg_lane_at(memory, &server.layout, 0), .hello = NONE, .asked = NONE };
	base = (uint8_t *)agent.control + VG_PAGE;
	agent.life = vg_load64(&agent.control->life);
	vg_ring_init(&agent.submit, base, VG_CONTROL_RING, &agent.control->submit_head, &agent.control->submit_tail);
	vg_ring_init(&agent.reply, base + VG_CONTROL_RING, VG_CONTROL_RING, &agent.control->reply_head, &agent.control->reply_tail);
	agent.submit.mine = agent.submit.theirs = vg_load64(&agent.control->submit_tail);
	agent.reply.mine = vg_load64(&agent.control->reply_head);
	vg_store64(&agent.control->submit_head, agent.submit.mine);
	vg_ring_release(&agent.reply);
}

static uint32_t send_frame(uint32_t op, uint32_t flags, const void *payload, size_t size)
{
	struct vg_frame_header header = { .length = VG_ALIGN + (uint32_t)size, .op = op, .sequence = ++agent.sequence, .flags = flags };
	uint8_t *place;

	if (vg_ring_room(&agent.submit, header.length))
		return NONE;
	place = vg_ring_place(&agent.submit, header.length);
	if (place < memory || place + header.length > memory + MEMORY)
		return NONE; /* its own words are spoilt: the real one's are private */
	vg_copy_out(place + VG_ALIGN, payload, size);
	vg_copy_out(place, &header, sizeof(header));
	vg_ring_publish(&agent.submit, header.length);
	return header.sequence;
}

static uint32_t say_hello(void)
{
	struct vg_hello hello = { .version = VG_WIRE_VERSION, .agent = "fuzz" };

	return send_frame(VG_CONTROL_HELLO, VG_WANTS_REPLY, &hello, sizeof(hello));
}

static void take_reply(const struct vg_reply_header *header, const uint8_t *data)
{
	if (header->sequence == agent.hello && !header->status) {
		agent.greeted = true;
		greeted++;
	}
	if (header->sequence == agent.asked && !header->status && header->length == VG_ALIGN + sizeof(agent.lane)) {
		memcpy(&agent.lane, data, sizeof(agent.lane));
		opened++;
	}
}

static void take_replies(void)
{
	static uint8_t data[VG_CONTROL_RING];
	struct vg_reply_header header;
	int64_t waiting;

	while ((waiting = vg_ring_waiting(&agent.reply))) {
		int error = waiting < 0 ? (int)waiting : vg_ring_next(&agent.reply, &header);

		if (error == -EAGAIN)
			continue;
		if (error || header.length > sizeof(data))
			return begin();
		vg_copy_in(data, vg_ring_payload(&agent.reply), header.length - VG_ALIGN);
		vg_ring_consume(&agent.reply, header.length);
		vg_ring_release(&agent.reply);
		take_reply(&header, data);
	}
}

/* ---- what a guest may do */

static void ask(void)
{
	uint64_t words[40] = { 0 };
	struct vg_open open = { .pid = (uint32_t)roll(1000) };
	struct vg_close end = { .lane = (uint32_t)roll(roll(8) ? 6 : 70), .generation = server.entry[roll(6)].generation };
	struct vg_claim claim = { .lane = agent.lane.lane && roll(6) ? (struct vg_close){ agent.lane.lane, 0, agent.lane.generation } : end,
				  .open = open };
	uint32_t flags = roll(90) ? VG_WANTS_REPLY : (uint32_t)roll(16);

	memset(open.name, 'n', sizeof(open.name)); /* without an end */
	switch (roll(9)) {
	case 0:
		agent.hello = say_hello();
		break;
	case 1:
		agent.asked = send_frame(VG_CONTROL_OPEN, flags, &open, sizeof(open) - !roll(90));
		break;
	case 2:
	case 3:
		agent.asked = send_frame(VG_CONTROL_RESERVE, flags, &open, sizeof(open));
		break;
	case 4:
	case 5:
		claimed += send_frame(VG_CONTROL_CLAIM, flags, &claim, sizeof(claim)) != NONE;
		break;
	case 6:
		send_frame(VG_CONTROL_CLOSE, flags, &end, sizeof(end));
		break;
	case 7:
		for (unsigned i = 0; i < 40; i++)
			words[i] = (uint64_t)(i + 1 + !roll(200)) << VG_ID_SHIFT | 7;
		send_frame(VG_OP_INTERFACE, flags, words, 8 * roll(41));
		break;
	default:
		if (!roll(6))
			send_frame((uint32_t)roll(40), flags, words, roll(sizeof(words)));
	}
}

/* Bytes of the lane's page and rings, its words, and the header. */
static void spoil(void)
{
	vg_word64 *words[] = { &agent.control->submit_head, &agent.control->submit_tail, &agent.control->reply_head,
			       &agent.control->reply_tail, &agent.control->life };
	vg_word64 *word = words[roll(5)];
	static const uint64_t odd[] = { 0, 1, 32, 4096, 1 << 16, UINT32_MAX, UINT64_MAX, UINT64_MAX - 31 };

	spoilt++;
	switch (roll(4)) {
	case 0:
		vg_store64(word, odd[roll(8)]);
		break;
	case 1:
		vg_store64(word, vg_load64(word) + (roll(2) ? 32 * roll(300) : (uint64_t)-32 * roll(300)));
		break;
	case 2:
		vg_store32(&agent.control->parked, (uint32_t)roll(3));
		break;
	default:
		((uint8_t *)agent.control)[VG_PAGE + roll(2 * VG_CONTROL_RING)] ^= (uint8_t)(1 << roll(8));
	}
}

static void step(void)
{
	uint64_t life = server.control_ring.generation;

	if (agent.life != vg_load64(&agent.control->life) && roll(8)) {
		begin();
		agent.hello = say_hello();
	} else if (!roll(24)) {
		spoil();
	} else if (!roll(60)) {
		begin();
	} else if (!roll(4) || (!agent.greeted && roll(8))) {
		take_replies();
	} else {
		ask();
	}
	live(false);
	if (roll(4))
		vg_control_poll(&server);
	resets += life != server.control_ring.generation;
	check_lanes();
}

/* ---- the end */

/* An agent that is as it must be gets a lane: it begins again where the lane is another, or where it hears nothing. */
static void serve_an_agent(void)
{
	struct vg_open open = { .pid = 1 };
	uint32_t lane = 0;

	for (unsigned turn = 0; turn < END_TURNS; turn++) {
		vg_lane_publish(&server.control_ring); /* as several times a second */
		live(true);
		if (!turn || agent.life != vg_load64(&agent.control->life) || (turn % 20 == 19 && !agent.greeted))
			begin();
		if (agent.hello == NONE)
			agent.hello = say_hello();
		else if (agent.greeted && agent.asked == NONE)
			agent.asked = send_frame(VG_CONTROL_OPEN, VG_WANTS_REPLY, &open, sizeof(open));
		vg_control_poll(&server);
		check_lanes();
		take_replies();
		lane = agent.lane.lane;
		if (lane && lane <= server.layout.lane_count && server.entry[lane].generation == agent.lane.generation)
			return;
	}
	fprintf(stderr, "no lane: life %llu, greeted %d, asked %u\n", (unsigned long long)agent.life, agent.greeted, agent.asked);
	abort();
}

static void start(void)
{
	struct vg_header *header = (struct vg_header *)memory;

	memset(memory, 0, sizeof(memory));
	server = (struct vg_server){ .keeper = -1, .serial = -1, .interface = &interface, .ops = &operations, .memory = memory,
				     .header = header, .epoch = 7, .spare = VG_NO_SESSION };
	operations = (struct vg_session_ops){ 0 };
	server.stats = calloc(1, sizeof(*server.stats));
	server.watch = calloc(1, sizeof(*server.watch));
	if (!server.stats || !server.watch || vg_layout(MEMORY, &server.layout))
		abort();
	vg_layout_publish(&server.layout, header);
	server.control_ring.server = &server;
	server.control_ring.ring = true;
	server.control_ring.words = &server.control_words[0];
	server.control_ring.socket = -1;
	vg_control_poll(&server); /* makes it, as at the start */
	begin();
	agent.hello = say_hello();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	tape = bytes;
	tape_end = bytes + size;
	start();
	while (tape < tape_end)
		step();
	serve_an_agent();
	free(server.stats);
	free(server.watch);
	return 0;
}

/* ---- inputs */

static uint64_t state;

static uint64_t noise(uint64_t most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % most;
}

static size_t make_tape(uint64_t seed, uint8_t *bytes, size_t room)
{
	size_t length;

	state = seed * 0x9e3779b97f4a7c15ull | 1;
	length = 1 + noise(room < TAPE_MAX ? room : TAPE_MAX);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)noise(256);
	return length;
}

/* Another processor of the guest, which writes over the lane while it is read. */
static _Atomic bool races;

static void *race(void *unused)
{
	uint64_t own_state = 88172645463325252ull;
	volatile uint8_t *lane = memory + VG_CONTROL_OFFSET;

	for (;; usleep(1)) {
		for (unsigned i = 0; races && i < 20; i++) {
			own_state ^= own_state << 13, own_state ^= own_state >> 7, own_state ^= own_state << 17;
			lane[own_state % (VG_PAGE + 2 * VG_CONTROL_RING)] = (uint8_t)(own_state >> 40);
		}
	}
	return unused;
}

int main(int argc, char **argv)
{
	static uint8_t bytes[TAPE_MAX];
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	pthread_t thread;

	if (!freopen("/dev/null", "w", stderr)) /* what the server says of its guest */
		return 2;
	if (argc > 1 && !strcmp(argv[1], "kept"))
		return kept_main(argc - 2, argv + 2, make_tape);
	pthread_create(&thread, NULL, race, NULL);
	for (unsigned long i = 0; i < rounds; i++) {
		size_t length = make_tape(strtoull(argv[1], NULL, 0) * 1000003 + i, bytes, sizeof(bytes));

		tape = bytes;
		tape_end = bytes + length;
		start();
		races = i % 2;
		while (tape < tape_end)
			step();
		races = false;
		usleep(200); /* a turn of it may still be on its way */
		serve_an_agent();
		free(server.stats);
		free(server.watch);
	}
	printf("%lu greeted, %lu opened, %lu claims, %lu resets, %lu spoilt\n", greeted, opened, claimed, resets, spoilt);
	return 0;
}
