/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the worker's decoders, without a channel: arguments are the null driver, a number of rounds, a seed, and files
 * of the corpus. A file is one byte (which driver call fails; 0: none), then frames: operation, bulk length, payload
 * length (16 bits each), payload. Each round runs a file with a few random changes in a fresh session; at its end no
 * object of the driver may be left.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "no_transport.h"
#include "session.h"
#include "vg_worker.h"

enum { FILES = 128, SIZE = 1 << 16 };

static struct {
	size_t length;
	uint8_t bytes[4096];
} files[FILES];

static _Atomic unsigned long asked, answered;
static uint64_t state;

static uint64_t roll(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return state;
}

int vg_answer(struct vg_lane *lane, uint32_t sequence, int32_t status, const void *data, size_t length, size_t bulk)
{
	volatile uint8_t sum = 0;

	(void)lane, (void)sequence, (void)status, (void)bulk;
	for (size_t i = 0; i < length; i++) /* a reply that was not initialised is found here */
		sum += ((const uint8_t *)data)[i];
	answered++;
	return 0;
}

/* One frame; the payload is a copy of exactly its length, so that a read beyond it is noticed. */
static int frame(struct wk_session *s, const uint8_t *at, uint32_t sequence, uint8_t *bulk)
{
	uint16_t op, bulk_length, length;
	const struct wk_operation *o;
	struct vg_call call;
	uint8_t *payload;
	int error;

	memcpy(&op, at, 2), memcpy(&bulk_length, at + 2, 2), memcpy(&length, at + 4, 2);
	o = wk_operation(op);
	payload = malloc(length ? length : 1);
	memcpy(payload, at + 6, length);
	call = (struct vg_call){ .op = op, .sequence = sequence, .payload = payload, .payload_length = length };
	call.wants_reply = o && !(o->flags & WK_QUIET);
	if (o && o->flags & WK_BULK_IN)
		call.bulk_in = bulk, call.bulk_in_length = bulk_length;
	if (o && o->flags & WK_BULK_OUT)
		call.bulk_out = bulk, call.bulk_out_length = bulk_length;
	asked += call.wants_reply;
	error = wk_call(s, NULL, &call);
	if (error)
		asked -= call.wants_reply;
	free(payload);
	return error;
}

static void run(const uint8_t *bytes, size_t length, void (*fail_after)(unsigned int))
{
	struct wk_session *s = wk_session_create(NULL);
	uint8_t *bulk = calloc(1, SIZE);
	size_t at = 1, step;
	uint32_t sequence = 0;
	uint16_t payload;

	fail_after(bytes[0]);
	for (; at + 6 <= length; at += step) {
		memcpy(&payload, bytes + at + 4, 2);
		step = 6 + payload;
		if (at + step > length || frame(s, bytes + at, ++sequence, bulk))
			break;
	}
	wk_session_destroy(s);
	fail_after(0);
	free(bulk);
}

/* Changes where it hurts: single words of payloads, lengths, the order of frames, and plain bytes. */
static void change(uint8_t *bytes, size_t *length)
{
	static const uint64_t words[] = { 0, 1, ~0ull, 1ull << 63, 1ull << 32, 0x1000000100000000, 0x2000000100000000,
					  0x5000000100000000, 0x7fffffff, 4096 };
	size_t at = roll() % *length, n;

	switch (roll() % 4) {
	case 0:
		bytes[at] = roll();
		break;
	case 1:
		if (at + 8 <= *length)
			memcpy(bytes + at, &words[roll() % (sizeof(words) / sizeof(words[0]))], 8);
		break;
	case 2:
		*length = at ? at : 1;
		break;
	default:
		n = files[roll() % FILES].length ? roll() % FILES : 0;
		if (files[n].length && *length + files[n].length <= 8192) {
			memcpy(bytes + *length, files[n].bytes + 1, files[n].length - 1);
			*length += files[n].length - 1;
		}
	}
}

static void read_file(const char *name, int i)
{
	FILE *f = fopen(name, "rb");

	if (!f)
		exit(2);
	files[i].length = fread(files[i].bytes, 1, sizeof(files[i].bytes), f);
	fclose(f);
}

int main(int argc, char **argv)
{
	char message[512];
	void *library = dlopen(argv[1], RTLD_NOW);
	void (*fail_after)(unsigned int) = (void (*)(unsigned int))dlsym(library, "null_fail_after");
	unsigned long (*live)(void) = (unsigned long (*)(void))dlsym(library, "null_live");
	int count = argc - 4 < FILES ? argc - 4 : FILES, rounds = atoi(argv[2]);
	static uint8_t bytes[16384];

	state = strtoull(argv[3], NULL, 0) * 2 + 1;
	if (count < 1 || wk_driver_load(argv[1], message, sizeof(message)))
		return 2;
	for (int i = 0; i < count; i++)
		read_file(argv[i + 4], i);
	for (int i = 0; i < rounds + count; i++) {
		int which = i < count ? i : (int)(roll() % count);
		size_t length = files[which].length;

		memcpy(bytes, files[which].bytes, length);
		if (i >= count) {
			for (uint64_t n = roll() % 6; n; n--)
				change(bytes, &length);
			bytes[0] = roll() % 3 ? 0 : roll() % 40;
		}
		run(bytes, length, fail_after);
		if (live() || asked != answered) {
			fprintf(stderr, "round %d: %lu objects left, %lu calls, %lu answers\n", i, live(), asked, answered);
			return 1;
		}
	}
	return 0;
}
