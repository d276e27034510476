/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's end of the serial stream: syncs, lane 0 and the messages of lanes, in pieces of any size. An input is what
 * a guest writes, after one byte for the size of the pieces; where the server hangs up, the rest goes to the next
 * connection. Usage: serial_fuzz SEED ROUNDS, or "kept" and what kept.h says. Sessions decode their frames in this
 * process.
 * With VG_LIBFUZZER and -fsanitize=fuzzer it is a libFuzzer target.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <errno.h>

#include "../../vgpumgr/virtio/native/transport/util.h"
#include "../../vgpumgr/virtio/native/transport/worker.h"
#include "kept.h"

enum { LARGEST = 128 << 10, PERIOD = 64 };

static struct vg_lane *sessions[VG_LANE_TABLE];
static struct vg_lane_words words[VG_LANE_TABLE];
static unsigned long greeted, opened, calls, hung_up, compared;
static int guest = -1;

/* ---- the server's lanes, without processes ---- */

/* Lanes of the ring only are reserved: a serial stream that asks for one is refused before. */
int vg_entry_reserve(struct vg_server *server, struct vg_opened *opened)
{
	(void)server, (void)opened;
	abort();
}

int vg_entry_claim(struct vg_server *server, const struct vg_claim *claim)
{
	(void)server, (void)claim;
	abort();
}

int vg_entry_open(struct vg_server *server, bool ring, const struct vg_open *open, uint32_t sequence)
{
	uint32_t number = VG_SERIAL_LANE_FIRST;
	struct vg_opened answer;
	struct vg_entry *entry;

	assert(!ring && open);
	while (number < VG_LANE_TABLE && sessions[number])
		number++;
	if (number == VG_LANE_TABLE)
		return -EUSERS;
	entry = &server->entry[number];
	*entry = (struct vg_entry){ .number = number, .state = LANE_OPEN, .generation = ++server->counter };
	words[number] = (struct vg_lane_words){ 0 };
	sessions[number] = calloc(1, sizeof(struct vg_lane));
	sessions[number]->server = server;
	sessions[number]->number = number;
	sessions[number]->words = &words[number];
	sessions[number]->socket = -1;
	answer = (struct vg_opened){ .lane = number, .generation = entry->generation };
	opened++;
	return vg_answer(&server->control_serial, sequence, 0, &answer, sizeof(answer), 0) == -ENOENT ? -EPROTO : 0;
}

void vg_entry_close(struct vg_entry *entry)
{
	struct vg_lane *lane = entry->number < VG_LANE_TABLE ? sessions[entry->number] : NULL;

	entry->state = LANE_FREE;
	if (!lane)
		return;
	sessions[entry->number] = NULL;
	vg_pending_drop(lane);
	free(lane->bulk);
	free(lane);
}

void vg_entries_close(struct vg_server *server, bool ring)
{
	for (unsigned i = 0; i < VG_LANE_TABLE && !ring; i++)
		if (sessions[i])
			vg_entry_close(&server->entry[i]);
}

/* As a session does: reads all that it was given, fills all that it may, answers. */
static const uint64_t own[] = { 1ull << VG_ID_SHIFT | 7, 2ull << VG_ID_SHIFT | 7, 9ull << VG_ID_SHIFT | 7 };
static const struct vg_interface interface = { own, 3, { 1, 2, 3 } };

static int use(struct vg_lane *lane, const struct vg_call *call)
{
	static volatile uint64_t sink;
	uint64_t sum = 0;

	if (call->op == VG_OP_INTERFACE && vg_interface_answer(lane, call, &interface, lane->server->stats, "x has", "1.0"))
		return -EPROTO;
	if (call->op == VG_OP_INTERFACE) {
		compared++;
		return 0;
	}
	for (size_t i = 0; i < call->payload_length; i++)
		sum += ((const uint8_t *)call->payload)[i];
	for (size_t i = 0; i < call->bulk_in_length; i++)
		sum += ((const uint8_t *)call->bulk_in)[i];
	sink += sum;
	if (call->bulk_out)
		memset(call->bulk_out, 7, call->bulk_out_length);
	if (call->wants_reply && call->sequence % 3)
		vg_answer(lane, call->sequence, 0, call->payload, call->payload_length, call->bulk_out_length);
	calls++;
	return 0;
}

int vg_entry_deliver(struct vg_server *server, struct vg_entry *entry, const void *bytes, size_t length)
{
	struct vg_lane *lane = sessions[entry - server->entry];
	struct vg_message message;
	struct vg_call call;
	const char *text;
	uint8_t *body;
	int got;

	memcpy(&message, bytes, sizeof(message));
	assert(length == sizeof(message) + message.length && message.length <= VG_MESSAGE_MAX);
	if (!lane)
		return 0;
	body = malloc(message.length + 1); /* of exactly its length: a read beyond it is noticed */
	memcpy(body, (const uint8_t *)bytes + sizeof(message), message.length);
	got = vg_serial_take(lane, &message, body, &call, &text);
	if (got > 0) {
		got = use(lane, &call);
		lane->bulk_filled = 0;
	}
	free(body);
	if (got < 0)
		vg_entry_close(entry);
	return 0;
}

/* ---- one input ---- */

static void drain(void)
{
	static uint8_t bytes[1 << 16];

	while (recv(guest, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static void connect_again(struct vg_server *server)
{
	int pair[2];

	vg_close_fd(&guest);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		abort();
	guest = pair[0];
	vg_serial_adopt(server, pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct vg_server server;
	size_t piece = size ? 1 + bytes[0] * 37u : 1;

	server = (struct vg_server){ .keeper = -1, .serial = -1, .serial_path = VG_SERIAL_OF_KEEPER,
				     .interface = &interface };
	server.stats = calloc(1, sizeof(*server.stats));
	server.serial_in = malloc(64 << 10);
	server.control_serial.server = &server;
	server.control_serial.words = &server.control_words[1];
	server.control_serial.socket = -1;
	connect_again(&server);
	for (size_t at = 1; at < size;) {
		size_t part = size - at < piece ? size - at : piece;
		ssize_t n = send(guest, bytes + at, part, MSG_NOSIGNAL | MSG_DONTWAIT);

		at += n > 0 ? (size_t)n : 0;
		vg_serial_poll(&server, 1 /* POLLIN */);
		greeted += server.greeted[1];
		drain();
		if (server.serial < 0) {
			hung_up++;
			connect_again(&server);
		}
	}
	vg_serial_hang_up(&server);
	vg_close_fd(&guest);
	free(server.control_serial.bulk);
	free(server.serial_in);
	free(server.serial_out);
	free(server.stats);
	return 0;
}

#ifndef VG_LIBFUZZER
/* ---- inputs that are mostly right ---- */

static uint64_t state;
static uint8_t input[LARGEST];
static size_t length;

static uint64_t roll(uint64_t most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % most;
}

static void put(const void *bytes, size_t count)
{
	if (count && length + count <= sizeof(input))
		memcpy(input + length, bytes, count);
	length += length + count <= sizeof(input) ? count : 0;
}

static void put_message(uint32_t lane, uint32_t kind, const void *a, size_t a_length, const void *b, size_t b_length)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, lane, kind, (uint32_t)(a_length + b_length) };

	put(&message, sizeof(message));
	put(a, a_length);
	put(b, b_length);
}

static void put_frame(uint32_t lane, uint32_t op, uint32_t flags, uint32_t bulk, const void *payload, size_t size)
{
	struct vg_frame_header header = { .length = VG_ALIGN + (uint32_t)size, .op = op, .sequence = (uint32_t)roll(80),
					  .flags = flags, .bulk_length = bulk };

	put_message(lane, VG_KIND_FRAME, &header, sizeof(header), payload, size);
}

/* Mostly as it must be; else empty, too long, cut off, with an id of 0, or one that does not rise. */
static void put_interface(uint32_t lane)
{
	static uint64_t words[VG_OPERATIONS_MAX + 2];
	uint64_t id = roll(30) ? 1 : 0, count = roll(20) ? roll(60) : roll(VG_OPERATIONS_MAX + 3);

	for (uint64_t i = 0; i < count; i++, id += roll(100) ? 1 + roll(2) : 0)
		words[i] = id << VG_ID_SHIFT | (roll(3) ? 7 : roll(1 << 20));
	put_frame(lane, VG_OP_INTERFACE, roll(20) ? VG_WANTS_REPLY : 0, 0, words, (roll(30) ? 8 : 5) * count);
}

static void put_control(void)
{
	struct vg_hello hello = { .version = roll(20) ? VG_WIRE_VERSION : 7 };
	struct vg_open open = { .pid = (uint32_t)roll(1000) };
	struct vg_close end = { .lane = VG_SERIAL_LANE_FIRST + (uint32_t)roll(VG_SERIAL_LANES + 1), .generation = roll(40) };

	memset(open.name, 'n', sizeof(open.name)); /* without an end */
	switch (roll(13)) {
	case 12:
		put_interface(0);
		break;
	case 0:
		put(VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE);
		put(&state, 8);
		/* fallthrough */
	case 1:
		put_frame(0, VG_CONTROL_HELLO, VG_WANTS_REPLY, 0, &hello, sizeof(hello));
		break;
	case 2:
		put_frame(0, VG_CONTROL_CLOSE, VG_WANTS_REPLY, 0, &end, sizeof(end));
		break;
	default:
		put_frame(0, VG_CONTROL_OPEN, VG_WANTS_REPLY, 0, &open, sizeof(open));
	}
}

static void put_call(void)
{
	static uint8_t bytes[VG_PAYLOAD_RING_MAX];
	uint32_t lane = VG_SERIAL_LANE_FIRST + (uint32_t)roll(roll(20) ? 4 : VG_SERIAL_LANES + 1), bulk = (uint32_t)roll(9000);

	switch (roll(5)) {
	case 4:
		put_interface(lane);
		break;
	case 0:
		put_message(lane, VG_KIND_BULK, bytes, bulk, NULL, 0);
		put_frame(lane, 3, VG_HAS_BULK_IN, bulk + !roll(30), bytes, roll(200));
		break;
	case 1:
		put_frame(lane, 4, VG_WANTS_REPLY | VG_HAS_BULK_OUT, roll(20) ? bulk : (uint32_t)roll(1 << 20), bytes, roll(200));
		break;
	default:
		put_frame(lane, 5, roll(2) ? VG_WANTS_REPLY : 0, 0, bytes, roll(20) ? roll(100) : roll(sizeof(bytes)));
	}
}

static void make_input(void)
{
	length = 0;
	input[length++] = (uint8_t)roll(256);
	put(VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE);
	put(&state, 8);
	put_frame(0, VG_CONTROL_HELLO, VG_WANTS_REPLY, 0, &(struct vg_hello){ .version = VG_WIRE_VERSION }, sizeof(struct vg_hello));
	for (unsigned i = 0, count = (unsigned)roll(PERIOD); i < count; i++) {
		if (roll(3))
			put_call();
		else
			put_control();
	}
	for (unsigned i = 0, count = roll(2) ? 0 : (unsigned)roll(4); i < count; i++)
		input[roll(length)] ^= (uint8_t)(1 << roll(8));
}

static size_t make_seeded(uint64_t seed, uint8_t *bytes, size_t room)
{
	state = seed * 0x9e3779b97f4a7c15ull | 1;
	make_input();
	length = length < room ? length : room;
	memcpy(bytes, input, length);
	return length;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;

	if (argc > 1 && !strcmp(argv[1], "kept"))
		return kept_main(argc - 2, argv + 2, make_seeded);
	state = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1) * 0x9e3779b97f4a7c15ull | 1;
	for (unsigned long i = 0; i < rounds; i++) {
		make_input();
		LLVMFuzzerTestOneInput(input, length);
	}
	printf("%lu greeted, %lu opened, %lu calls, %lu hung up, %lu compared\n", greeted, opened, calls, hung_up, compared);
	return 0;
}
#endif
