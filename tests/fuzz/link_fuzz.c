/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two ends of a link read: usage is link_fuzz cuts|bounds, link_fuzz SEED ROUNDS, or what kept.h says. An input is a tape.
 * Its first byte chooses: an enemy, whose bytes are the rest of the tape, against the stream and the reader of messages of
 * either side; two honest ends on connections that the tape cuts, each byte of which must arrive once and in order; or
 * a line of a broker's. "cuts" does the second with a cut after each byte of a conversation, each way.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kept.h"
#include "link/json.h"
#include "link/message.h"

enum { TAPE_MAX = 4096, PIPE = 1 << 20, BULK = 4096 };

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "link_fuzz: %s\n", what);
	abort();
}

/* ---- an enemy ---- */

struct enemy {
	const uint8_t *at, *end;
	unsigned step;
};

static ssize_t read_enemy(void *context, void *to, size_t size)
{
	struct enemy *enemy = context;
	size_t left = (size_t)(enemy->end - enemy->at);

	if (!left)
		return -EAGAIN;
	if (size > left)
		size = left;
	if (size > enemy->step)
		size = enemy->step;
	memcpy(to, enemy->at, size);
	enemy->at += size;
	return (ssize_t)size;
}

static ssize_t write_nowhere(void *context, const void *from, size_t size)
{
	(void)context, (void)from;
	return (ssize_t)size;
}

/* Exactly what a message says, so that a byte more is found. */
struct place {
	uint8_t *payload, *bulk;
	unsigned begun, ended;
};

static int begin(void *context, const struct vg_link_message *message, uint8_t **payload, uint8_t **bulk)
{
	struct place *place = context;

	check(message->length <= VG_PAYLOAD_RING_MAX && message->bulk <= BULK && message->wish <= BULK, "a message of that size");
	free(place->payload);
	free(place->bulk);
	*payload = place->payload = malloc(message->length ? message->length : 1);
	*bulk = place->bulk = malloc(message->bulk ? message->bulk : 1);
	place->begun++;
	return message->op == 0xeeee ? -EAGAIN : 0;
}

static int end(void *context, const struct vg_link_message *message)
{
	struct place *place = context;

	place->ended++;
	return message->op == 0xdddd ? -EPROTO : 0;
}

static const struct vg_reader_ops ops = { begin, end };

static void meet_enemy(const uint8_t *bytes, size_t size, bool relay)
{
	struct enemy enemy = { bytes + 1, bytes + size, 1 + bytes[0] };
	struct vg_link_io io = { &enemy, read_enemy, write_nowhere };
	struct place place = { 0 };
	static struct vg_durable memory; /* made once, as for the peers */
	struct vg_durable stream = { 0 };
	struct vg_reader reader = { .ops = &ops, .context = &place, .relay = relay, .bulk_max = BULK };
	int got = 1;

	if (!memory.out)
		check(!vg_durable_init(&memory), "memory");
	stream.out = memory.out;
	stream.in = memory.in;
	vg_durable_write(&stream, "greetings", 9);
	vg_durable_attach(&stream, &io, 0);
	for (unsigned i = 0; i < 64 && got > 0; i++) {
		got = vg_durable_receive(&stream, i);
		if (got >= 0 && vg_reader_read(&reader, &stream) && vg_reader_read(&reader, &stream) != -EAGAIN)
			break;
		if (got >= 0)
			got |= vg_durable_send(&stream, i);
	}
	vg_durable_tick(&stream, 5000);
	vg_durable_send(&stream, 5000);
	check(vg_durable_tick(&stream, VG_LINK_DEAD_MS + 64) == -ETIMEDOUT, "it is dead");
	vg_durable_detach(&stream);
	free(place.payload);
	free(place.bulk);
}

/* ---- two honest ends ---- */

struct way {
	uint8_t *bytes;
	size_t from, to;
	long budget;             /* bytes until the cut; negative: none */
};

struct peer {
	struct vg_durable stream;
	struct way *in, *out;
	uint64_t wrote, took;
	uint8_t first;           /* of what it writes */
};

static struct way ways[2];
static struct peer ends[2];

static uint8_t pattern(uint8_t first, uint64_t at)
{
	return (uint8_t)(first + at * 7 + (at >> 8));
}

static ssize_t read_way(void *context, void *to, size_t size)
{
	struct way *way = ((struct peer *)context)->in;
	size_t left = way->to - way->from;

	if (!left)
		return way->budget ? -EAGAIN : -ECONNRESET;
	if (size > left)
		size = left;
	memcpy(to, way->bytes + way->from, size);
	way->from += size;
	return (ssize_t)size;
}

static ssize_t write_way(void *context, const void *from, size_t size)
{
	struct way *way = ((struct peer *)context)->out;

	if (!way->budget)
		return -ECONNRESET;
	if (way->from == way->to)
		way->from = way->to = 0;
	if (size > PIPE - way->to)
		size = PIPE - way->to;
	if (way->budget > 0 && size > (size_t)way->budget)
		size = (size_t)way->budget;
	if (!size)
		return -EAGAIN;
	memcpy(way->bytes + way->to, from, size);
	way->to += size;
	way->budget -= way->budget > 0 ? (long)size : 0;
	return (ssize_t)size;
}

static void connect_peers(long budget_one, long budget_other)
{
	for (int i = 0; i < 2; i++) {
		struct vg_link_io io = { &ends[i], read_way, write_way };

		ways[i].from = ways[i].to = 0;
		ways[i].budget = i ? budget_other : budget_one;
		vg_durable_detach(&ends[i].stream);
		vg_durable_attach(&ends[i].stream, &io, 0);
	}
}

static void begin_peers(void)
{
	for (int i = 0; i < 2; i++) {
		if (!ways[i].bytes)
			ways[i].bytes = malloc(PIPE);
		static uint8_t *rings[2][2]; /* 4 MiB each: to make them anew takes longer than all else */
		struct vg_durable fresh = { 0 };

		if (!rings[i][0]) {
			check(!vg_durable_init(&fresh), "memory");
			rings[i][0] = fresh.out;
			rings[i][1] = fresh.in;
		}
		ends[i] = (struct peer){ .in = &ways[!i], .out = &ways[i], .first = (uint8_t)(i * 100) };
		ends[i].stream = (struct vg_durable){ .out = rings[i][0], .in = rings[i][1] };
	}
	connect_peers(-1, -1);
}

static void write_some(struct peer *end, size_t length)
{
	static uint8_t bytes[1 << 16];

	if (length > sizeof(bytes))
		length = sizeof(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern(end->first, end->wrote + i);
	end->wrote += vg_durable_write(&end->stream, bytes, length);
}

static void take_some(struct peer *end, size_t most)
{
	uint8_t first = end == ends ? ends[1].first : ends[0].first;
	const uint8_t *at;
	size_t n;

	while (most && (n = vg_durable_peek(&end->stream, &at))) {
		if (n > most)
			n = most;
		for (size_t i = 0; i < n; i++)
			check(at[i] == pattern(first, end->took + i), "each byte once, and in order");
		end->took += n;
		most -= n;
		vg_durable_take(&end->stream, n);
	}
}

/* False: the connection has broken. */
static bool move(struct peer *end)
{
	int sent = vg_durable_send(&end->stream, 1), got = vg_durable_receive(&end->stream, 1);

	check(sent != -EPROTO && got != -EPROTO && sent != -ESTALE && got != -ESTALE, "honest ends understand each other");
	return (!sent || sent == -EAGAIN) && got >= 0;
}

static void settle(void)
{
	connect_peers(-1, -1);
	for (unsigned i = 0; i < 20000; i++) {
		for (int e = 0; e < 2; e++) {
			check(move(&ends[e]), "nothing is cut");
			take_some(&ends[e], SIZE_MAX);
		}
		if (ends[0].took == ends[1].wrote && ends[1].took == ends[0].wrote)
			return;
	}
	check(false, "all of it arrives");
}

static void play(const uint8_t *at, const uint8_t *end)
{
	begin_peers();
	while (end - at >= 3) {
		struct peer *one = &ends[at[0] & 1];
		size_t amount = at[1] | (size_t)at[2] << 8;

		switch (at[0] >> 1 & 7) {
		case 0:
		case 1:
			write_some(one, amount);
			break;
		case 2:
			take_some(one, amount);
			break;
		case 3:
			connect_peers(amount, at[0] & 1 ? -1 : (long)amount / 2);
			break;
		case 4:
			ends[0].stream.says_ping = true;
			break;
		default:
			if (!move(one))
				connect_peers(-1, (long)amount);
		}
		at += 3;
	}
	settle();
}

/* ---- a broker ---- */

static void read_line(const uint8_t *bytes, size_t size)
{
	char *line = malloc(size + 1), text[40], quoted[40];
	unsigned count = 0;

	memcpy(line, bytes, size);
	line[size] = '\0';
	for (unsigned i = 0; i < 3; i++) {
		static const char *const keys[] = { "error", "tcp", "ok" };
		const char *value = vg_json_member(line, keys[i]);

		if (!value)
			continue;
		if (!vg_json_string(value, text, sizeof(text))) {
			check(strlen(text) < sizeof(text), "a text that ends");
			vg_json_quote(text, quoted, sizeof(quoted));
			check(vg_json_skip(quoted) && !*vg_json_skip(quoted), "what was quoted is a string");
		}
		for (const char *one = vg_json_first(value); one && count++ < 1000; one = vg_json_next(one))
			check(vg_json_skip(one) > one || !vg_json_skip(one), "elements have an end");
	}
	free(line);
}

/* ---- inputs ---- */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size < 2 || size > TAPE_MAX)
		return 0;
	switch (bytes[0] % 4) {
	case 0:
	case 1:
		meet_enemy(bytes + 1, size - 1, bytes[0] % 4);
		break;
	case 2:
		play(bytes + 1, bytes + size);
		break;
	default:
		read_line(bytes + 1, size - 1);
	}
	return 0;
}

static uint64_t state;

static unsigned noise(unsigned most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (unsigned)(state >> 11) % most;
}

static size_t add_head(uint8_t *at, uint32_t length, uint16_t kind, uint64_t value)
{
	struct vg_link_head head = { .length = length, .kind = kind, .value = value };

	memcpy(at, &head, sizeof(head));
	return sizeof(head);
}

static struct vg_link_message make_message(void)
{
	struct vg_link_message message = { .kind = 1 + noise(6), .length = noise(60) };

	if (message.kind == VG_LINK_HELLO)
		message.length = sizeof(struct vg_link_hello);
	if (message.kind == VG_LINK_WELCOME)
		message.length = sizeof(struct vg_link_welcome) + 8 * noise(4);
	if (message.kind == VG_LINK_FRAME || message.kind == VG_LINK_REPLY) {
		message.op = noise(20) ? noise(30) : 0xdddd + noise(2) * 0x1111;
		message.sequence = noise(100);
		message.bulk = noise(2) * noise(200);
		message.flags = message.kind == VG_LINK_REPLY ? noise(2) * VG_LINK_OUTPUT :
				message.bulk ? VG_LINK_BULK_IN | noise(2) : noise(2) ? VG_LINK_BULK_OUT | VG_LINK_WANTS_REPLY : 1;
		message.wish = message.flags & VG_LINK_BULK_OUT ? noise(BULK) : 0;
	}
	if (!noise(8))
		((uint32_t *)&message)[noise(8)] = noise(3) ? noise(70000) : UINT32_MAX;
	return message;
}

/* A conversation of which most is right; the rest is one byte or number of it. */
static size_t make_enemy(uint8_t *bytes, size_t most)
{
	size_t filled = 2;

	bytes[0] = (uint8_t)noise(2);
	bytes[1] = (uint8_t)noise(256);
	filled += add_head(bytes + filled, 0, noise(20) ? VG_LINK_RESUME : noise(6), noise(10) ? 0 : noise(12));
	while (filled + 700 < most && noise(12)) {
		struct vg_link_message message = make_message();
		size_t length = message.length + (size_t)message.bulk;

		length = length > 500 ? 500 : length;
		if (!noise(4))
			filled += add_head(bytes + filled, 0, noise(10) ? 3 + noise(2) : noise(8), noise(8) ? 0 : noise(20));
		filled += add_head(bytes + filled, (uint32_t)(sizeof(message) + length) + (noise(30) ? 0 : noise(50)), VG_LINK_DATA,
				   noise(20) ? 0 : noise(12));
		memcpy(bytes + filled, &message, sizeof(message));
		filled += sizeof(message);
		memset(bytes + filled, 'x', length);
		filled += length;
	}
	return filled;
}

static size_t make_line(uint8_t *bytes, size_t most)
{
	static const char *const lines[] = {
		"{\"ok\": true}", "{\"error\": \"no \\\"such\\\" claim \\u00e4 \\n\"}", "{\"tcp\": [[\"10.0.0.1\", 7443], [\"b\", 1]]}",
		"{\"a\": {\"b\": [1, -2.5e3, null, []]}, \"wait\": \"x\", \"error\": 5}", "{\"tcp\": [[[[[[[[[[]]]]]]]]]]}",
	};
	int n = snprintf((char *)bytes + 1, most - 1, "%s", lines[noise(5)]);

	bytes[0] = 3;
	if (noise(2))
		bytes[1 + noise((unsigned)n)] = (uint8_t)"{}[]\",:\\u0 "[noise(11)];
	return noise(6) ? 1 + (size_t)n : 1 + noise((unsigned)n);
}

static size_t make(uint64_t seed, uint8_t *bytes, size_t most)
{
	size_t length;

	state = seed * 0x9e3779b97f4a7c15ull + 1;
	if (most > TAPE_MAX)
		most = TAPE_MAX;
	if (!noise(3))
		return make_line(bytes, most);
	if (noise(2))
		return make_enemy(bytes, most);
	length = 4 + 3 * noise(200);
	bytes[0] = 2;
	for (size_t i = 1; i < length; i++)
		bytes[i] = (uint8_t)noise(256);
	return length;
}

/* ---- a cut after each byte ---- */

static void converse(long one, long other)
{
	begin_peers();
	connect_peers(one, other);
	for (unsigned i = 0; i < 12; i++) {
		write_some(&ends[i & 1], 40 + i * 3);
		for (int e = 0; e < 2; e++) {
			if (!move(&ends[e])) /* the next one is cut as soon */
				connect_peers(one, other);
			take_some(&ends[e], i % 3 ? SIZE_MAX : 10);
		}
	}
	settle();
}

/* ---- bounds: what is one byte too much ---- */

/* What is not taken is kept, up to the window, at either end. */
static void fill_window(void)
{
	static uint8_t record[VG_LINK_RECORD_MAX];
	struct enemy enemy = { .step = sizeof(record) };
	struct vg_link_io io = { &enemy, read_enemy, write_nowhere };
	int error = 0;

	begin_peers();
	for (unsigned i = 0; i < 100; i++)
		write_some(&ends[0], 1 << 16);
	check(ends[0].wrote == VG_LINK_WINDOW, "a window of bytes is kept");
	vg_durable_attach(&ends[1].stream, &io, 0);
	enemy.at = record;
	enemy.end = record + add_head(record, 0, VG_LINK_RESUME, 0);
	check(vg_durable_receive(&ends[1].stream, 0) == 0, "it goes on");
	for (unsigned i = 0; i < VG_LINK_WINDOW / 8192; i++) {
		enemy.at = record;
		enemy.end = record + add_head(record, 8192, VG_LINK_DATA, 0) + 8192;
		error |= vg_durable_receive(&ends[1].stream, 0);
	}
	check(!error, "a window of bytes is received");
	enemy.at = record;
	enemy.end = record + add_head(record, 1, VG_LINK_DATA, 0) + 1;
	check(vg_durable_receive(&ends[1].stream, 0) == -EPROTO, "and no byte more");
}

static int read_message(struct vg_link_message message)
{
	uint8_t bytes[200];
	struct enemy enemy = { bytes, bytes, sizeof(bytes) };
	struct vg_link_io io = { &enemy, read_enemy, write_nowhere };
	struct place place = { 0 };
	struct vg_reader reader = { .ops = &ops, .context = &place, .relay = message.kind == VG_LINK_REPLY, .bulk_max = BULK };
	size_t filled = add_head(bytes, 0, VG_LINK_RESUME, 0);
	int error;

	begin_peers();
	filled += add_head(bytes + filled, sizeof(message), VG_LINK_DATA, 0);
	memcpy(bytes + filled, &message, sizeof(message));
	enemy.end = bytes + filled + sizeof(message);
	vg_durable_attach(&ends[0].stream, &io, 0);
	check(!vg_durable_receive(&ends[0].stream, 0), "a record");
	error = vg_reader_read(&reader, &ends[0].stream);
	free(place.payload);
	free(place.bulk);
	return error;
}

static void exceed(void)
{
	struct vg_link_message in = { .kind = VG_LINK_FRAME, .flags = VG_LINK_BULK_IN, .bulk = BULK, .length = VG_PAYLOAD_RING_MAX };
	struct vg_link_message out = { .kind = VG_LINK_FRAME, .flags = VG_LINK_BULK_OUT | VG_LINK_WANTS_REPLY, .wish = BULK };
	struct vg_link_message reply = { .kind = VG_LINK_REPLY, .bulk = BULK, .length = VG_PAYLOAD_RING_MAX };

	check(!read_message(in) && !read_message(out) && !read_message(reply), "the most of each");
	in.bulk++, out.wish++, reply.bulk++;
	check(read_message(in) == -EPROTO && read_message(out) == -EPROTO && read_message(reply) == -EPROTO, "no byte more of bulk");
	in.bulk--, in.length++, reply.bulk--, reply.length++;
	check(read_message(in) == -EPROTO && read_message(reply) == -EPROTO, "no byte more of payload");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "kept"))
		return kept_main(argc - 2, argv + 2, make);
	if (argc == 2 && !strcmp(argv[1], "bounds")) {
		fill_window();
		exceed();
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "cuts")) {
		unsigned count = 0;

		for (long at = 16; at < 700; at++, count += 3) {
			converse(at, -1);
			converse(-1, at);
			converse(at, 716 - at);
		}
		printf("%u\n", count);
		return 0;
	}
	if (argc == 3) {
		static uint8_t bytes[TAPE_MAX];

		for (uint64_t i = 0; i < strtoull(argv[2], NULL, 10); i++)
			LLVMFuzzerTestOneInput(bytes, make(strtoull(argv[1], NULL, 10) + i, bytes, sizeof(bytes)));
		printf("%s\n", argv[2]);
		return 0;
	}
	return 2;
}
