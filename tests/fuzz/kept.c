/* SPDX-License-Identifier: Apache-2.0 */
/* See kept.h. What an input reaches is a set of places in the program, which the compiler has it report (trace-pc). */
#include "kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 4096, ROOM = 64 << 10, PLACES = 1 << 16, PATH = 512, LEAST_CUT = 16, TRIALS = 200, CHANGES = 6 };

struct input {
	char path[PATH];
	uint8_t *bytes;
	size_t length;
};

static struct input inputs[FILES];
static unsigned count;
/* An input may run in a process of its own: the maps are shared with it. */
static uint8_t *reached;
static uint8_t known[PLACES];
static uint64_t state;

extern const char __executable_start;

__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
	size_t place = (size_t)((const char *)__builtin_return_address(0) - &__executable_start);

	if (reached)
		reached[(place ^ place >> 16) % PLACES] = 1;
}

static uint64_t roll(uint64_t most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % most;
}

static void seed_with(const char *word)
{
	state = strtoull(word, NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
}

static bool add_input(const char *path, const uint8_t *bytes, size_t length)
{
	struct input *input = &inputs[count];

	if (count == FILES)
		return false;
	snprintf(input->path, sizeof(input->path), "%s", path);
	input->bytes = malloc(length + 1);
	memcpy(input->bytes, bytes, length);
	input->length = length;
	count++;
	return true;
}

static void read_input(const char *path)
{
	static uint8_t bytes[ROOM];
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(2);
	}
	add_input(path, bytes, fread(bytes, 1, sizeof(bytes), file));
	fclose(file);
}

static void write_input(const struct input *input)
{
	FILE *file = fopen(input->path, "wb");

	if (!file || fwrite(input->bytes, 1, input->length, file) != input->length || fclose(file)) {
		perror(input->path);
		exit(2);
	}
}

static void read_directory(const char *name)
{
	char path[PATH];
	DIR *directory = opendir(name);

	if (!directory) {
		perror(name);
		exit(2);
	}
	for (struct dirent *entry; (entry = readdir(directory));) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", name, entry->d_name) >= (int)sizeof(path))
			exit(2);
		read_input(path);
	}
	closedir(directory);
}

/* However the program ends, what it ran last is in the file that KEPT_LAST names. */
static void note_last(const uint8_t *bytes, size_t length)
{
	static int file = -2;

	if (file == -2)
		file = getenv("KEPT_LAST") ? open(getenv("KEPT_LAST"), O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
	if (file < 0)
		return;
	if (pwrite(file, bytes, length, 0) != (ssize_t)length || ftruncate(file, (off_t)length))
		exit(2);
}

/* Of exactly its length: a read beyond it is noticed. */
static void run_input(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	note_last(bytes, length);
	memcpy(copy, bytes, length);
	LLVMFuzzerTestOneInput(copy, length);
	free(copy);
}

/* ---- changes ---- */

static void cut_out(uint8_t *bytes, size_t *length, size_t at)
{
	size_t part = 1 + roll(*length - at);

	memmove(bytes + at, bytes + at + part, *length - at - part);
	*length -= part;
}

static void put_in(uint8_t *bytes, size_t *length, size_t at, size_t room)
{
	const struct input *other = &inputs[roll(count)];
	size_t from = other->length ? roll(other->length) : 0, part = other->length - from;

	part = part ? 1 + roll(part) : 0;
	if (*length + part > room)
		return;
	memmove(bytes + at + part, bytes + at, *length - at);
	memcpy(bytes + at, other->bytes + from, part);
	*length += part;
}

/* Where it hurts: numbers that say how much follows, single bits, pieces that are missing or another input's. */
static void change(uint8_t *bytes, size_t *length, size_t room)
{
	static const uint32_t words[] = { 0, 1, 31, 32, 33, 4096, 1u << 31, ~0u, 32768, 1u << 20 };
	size_t at = *length ? roll(*length) : 0;

	if (!*length)
		return put_in(bytes, length, at, room);
	switch (roll(5)) {
	case 0:
		bytes[at] ^= (uint8_t)(1 << roll(8));
		break;
	case 1:
		bytes[at] = (uint8_t)roll(256);
		break;
	case 2:
		if (at + 4 <= *length)
			memcpy(bytes + at, &words[roll(sizeof(words) / sizeof(words[0]))], 4);
		break;
	case 3:
		cut_out(bytes, length, at);
		break;
	default:
		put_in(bytes, length, at, room);
	}
}

static size_t make_changed(uint8_t *bytes, size_t room)
{
	const struct input *input = &inputs[roll(count)];
	size_t length = input->length;

	memcpy(bytes, input->bytes, length);
	for (uint64_t n = 1 + roll(CHANGES); n; n--)
		change(bytes, &length, room);
	return length;
}

/* ---- more and fewer ---- */

static bool is_new(void)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (reached[i] && !known[i])
			return true;
	return false;
}

static unsigned learn(void)
{
	unsigned all = 0;

	for (unsigned i = 0; i < PLACES; i++) {
		known[i] |= reached[i];
		all += known[i];
	}
	return all;
}

static void try_input(const uint8_t *bytes, size_t length)
{
	memset(reached, 0, PLACES);
	run_input(bytes, length);
}

static int grow(const char *seconds, const char *directory, kept_make *make)
{
	static uint8_t bytes[ROOM];
	time_t end = time(NULL) + atoi(seconds);
	char path[PATH];

	read_directory(directory);
	memset(reached, 0, PLACES);
	for (unsigned i = 0; i < count; i++)
		run_input(inputs[i].bytes, inputs[i].length);
	learn();
	while (time(NULL) < end) {
		bool made = !count || !roll(4);
		/* short ones as well: they are what is kept */
		size_t room = made ? 64 + roll(roll(2) ? 2048 : ROOM / 4) : ROOM;
		size_t length = made ? make(roll(1ull << 40), bytes, room) : make_changed(bytes, ROOM);

		try_input(bytes, length);
		if (!is_new())
			continue;
		learn();
		snprintf(path, sizeof(path), "%s/new-%u-%u.bin", directory, (unsigned)getpid(), count);
		if (!add_input(path, bytes, length))
			return 2;
		write_input(&inputs[count - 1]);
	}
	printf("%u inputs, %u places\n", count, learn());
	return 0;
}

/* Whether without `part` bytes from `at` on it still reaches `wanted`. */
static bool does_without(const struct input *input, size_t at, size_t part, const uint8_t *wanted)
{
	static uint8_t bytes[ROOM];

	memcpy(bytes, input->bytes, at);
	memcpy(bytes + at, input->bytes + at + part, input->length - at - part);
	try_input(bytes, input->length - part);
	for (unsigned i = 0; i < PLACES; i++)
		if (wanted[i] && !reached[i])
			return false;
	return true;
}

static void shorten(struct input *input)
{
	static uint8_t wanted[PLACES];
	unsigned trials = TRIALS; /* some inputs take milliseconds */

	for (unsigned i = 0; i < PLACES; i++)
		wanted[i] = reached[i] && !known[i];
	for (size_t part = input->length / 2; part >= LEAST_CUT; part /= 2)
		for (size_t at = input->length - input->length % part; at >= part && trials; at -= part, trials--)
			if (at <= input->length && does_without(input, at - part, part, wanted)) {
				memmove(input->bytes + at - part, input->bytes + at, input->length - at);
				input->length -= part;
			}
}

static int by_length(const void *a, const void *b)
{
	const struct input *one = a, *other = b;

	return one->length < other->length ? -1 : one->length > other->length;
}

static int minimise(const char *directory)
{
	unsigned kept = 0;

	read_directory(directory);
	qsort(inputs, count, sizeof(inputs[0]), by_length);
	for (unsigned i = 0; i < count; i++) {
		try_input(inputs[i].bytes, inputs[i].length);
		if (is_new()) {
			shorten(&inputs[i]);
			try_input(inputs[i].bytes, inputs[i].length);
			learn();
			write_input(&inputs[i]);
			kept++;
		} else {
			unlink(inputs[i].path);
		}
	}
	printf("%u inputs, %u places\n", kept, learn());
	return 0;
}

static int fuzz(unsigned long rounds)
{
	static uint8_t bytes[ROOM];

	for (unsigned long i = 0; i < rounds && count; i++)
		run_input(bytes, make_changed(bytes, ROOM));
	printf("%u inputs, %lu changed ones\n", count, rounds);
	return count ? 0 : 2;
}

int kept_main(int argc, char **argv, kept_make *make)
{
	const char *what = argc ? argv[0] : "";

	state = 1;
	reached = mmap(NULL, PLACES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (reached == MAP_FAILED)
		return 2;
	if (argc == 4 && !strcmp(what, "grow")) {
		seed_with(argv[1]);
		return grow(argv[2], argv[3], make);
	}
	if (argc == 2 && !strcmp(what, "minimise"))
		return minimise(argv[1]);
	if (argc < 2 || (strcmp(what, "replay") && (strcmp(what, "fuzz") || argc < 4)))
		return 2;
	for (int i = *what == 'f' ? 3 : 1; i < argc; i++)
		read_input(argv[i]);
	for (unsigned i = 0; i < count; i++)
		run_input(inputs[i].bytes, inputs[i].length);
	if (*what == 'r') {
		printf("%u inputs\n", count);
		return 0;
	}
	seed_with(argv[1]);
	return fuzz(strtoul(argv[2], NULL, 0));
}
