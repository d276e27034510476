/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutation fuzzing of the PTX parser, the interpreter and the fat-binary reader: random edits of real inputs, which may
 * be refused or fail, but may neither crash, hang nor touch memory that is not theirs. Built with sanitizers.
 * fuzz SEED COUNT FILE...; with COUNT 0 each file as it is.
 */
#include <fatbin.h>
#include <ptx.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { MEMORY = 1 << 20, BASE = 1 << 24, EDITS = 4 };

static uint8_t memory[MEMORY];
static uint64_t used;
static volatile bool cancel;
static uint64_t state;
static unsigned loaded, ran;

static uint32_t pick(uint32_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return n ? (uint32_t)(state >> 33) % n : 0;
}

static void *translate(void *ctx, uint64_t addr, uint64_t size, bool write, uint64_t *base, uint64_t *length)
{
	(void)ctx;
	(void)write;
	if (addr < BASE || addr - BASE >= MEMORY || size > MEMORY - (addr - BASE))
		return NULL;
	if (base)
		*base = BASE;
	if (length)
		*length = MEMORY;
	return memory + (addr - BASE);
}

static uint64_t allocate(void *ctx, uint64_t size, uint64_t align)
{
	uint64_t at = (used + align - 1) & ~(align - 1);

	(void)ctx;
	if (at > MEMORY || size > MEMORY - at)
		return 0;
	used = at + size;
	return BASE + at;
}

static void release(void *ctx, uint64_t addr)
{
	(void)ctx;
	(void)addr;
}

static void print(void *ctx, const char *text, size_t length)
{
	(void)ctx;
	(void)text;
	(void)length;
}

static void stop(int number)
{
	(void)number;
	cancel = true;
}

static void run(struct ptx_kernel *k)
{
	struct itimerval timer = { .it_value = { 0, 20000 } };
	struct ptx_kernel_info info;
	struct ptx_error error;
	uint64_t params[4096];
	struct ptx_launch launch = { { 2, 1, 1 }, { 40, 1, 1 }, 64, params, 4, &cancel, pick(3) ? 0 : state, !pick(3) };

	ptx_kernel_info(k, &info);
	for (int i = 0; i < 4096; i++)
		params[i] = pick(3) ? BASE + MEMORY / 2 + 8 * pick(1000) : pick(64);
	cancel = false;
	setitimer(ITIMER_REAL, &timer, NULL);
	if (ptx_run(k, &launch, &error) != (int)error.status)
		abort();
	ran += error.status == PTX_OK;
}

static void try_ptx(const char *text, size_t length)
{
	struct ptx_host host = { NULL, translate, allocate, release, print };
	struct ptx_module *module;
	struct ptx_error error;

	used = 0;
	if (ptx_module_load(text, length, &host, &module, &error)) {
		if (module || !error.message[0])
			abort();
		return;
	}
	loaded++;
	for (size_t k = 0; k < ptx_module_kernel_count(module) && k < 12; k++)
		run(ptx_module_kernel_at(module, pick((uint32_t)ptx_module_kernel_count(module))));
	ptx_module_unload(module);
}

static void try_image(const char *image, size_t length)
{
	char error[64], *text;
	size_t n;

	if (fatbin_image_length(image, length) > length)
		abort();
	if (fatbin_find_ptx(image, length, 60 + pick(70), &text, &n, error, sizeof error) == FATBIN_OK && strlen(text) != n)
		abort();
	free(text);
}

/* Overwrites a byte, a number or a piece, with something from elsewhere in the input where that makes sense. */
static size_t edit(char *data, size_t n)
{
	static const char *const words[] = { "0", "-1", "4294967295", "%r1", ".u64", "}", "{", ";", ",", "18446744073709551615", "[", ".v4" };
	uint32_t at = pick((uint32_t)n), from = pick((uint32_t)n), length = pick(24);
	const char *word = words[pick(sizeof words / sizeof *words)];

	if (at + 32 > n || from + 32 > n)
		return n;
	switch (pick(5)) {
	case 0:
		data[at] = (char)pick(256);
		break;
	case 1:
		memmove(data + at, data + from, length);
		break;
	case 2:
		memcpy(data + at, word, strlen(word));
		break;
	case 3:
		memmove(data + at, data + at + length, n - at - length);
		return n - length;
	default:
		data[at] ^= (char)(1 << pick(8));
	}
	return n;
}

static void mutate(const char *data, size_t n, bool edited)
{
	char *copy = malloc(n), *exact;

	memcpy(copy, data, n);
	for (uint32_t k = edited ? 1 + pick(EDITS) : 0; k; k--)
		n = edit(copy, n);
	if (edited && !pick(10))
		n = pick((uint32_t)n);
	exact = malloc(n ? n : 1); /* so that one byte too far is seen */
	memcpy(exact, copy, n);
	if (n > 4 && !memcmp(data, "\x50\xed\x55\xba", 4))
		try_image(exact, n);
	else
		try_ptx(exact, n);
	free(exact);
	free(copy);
}

static char *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *data = malloc(1 << 22);

	if (!f || !data)
		exit(2);
	*n = fread(data, 1, 1 << 22, f);
	fclose(f);
	return data;
}

int main(int argc, char **argv)
{
	unsigned count;

	if (argc < 4)
		return 2;
	signal(SIGALRM, stop);
	state = strtoull(argv[1], NULL, 10);
	count = (unsigned)strtoul(argv[2], NULL, 10);
	for (int f = 3; f < argc; f++) {
		size_t n;
		char *data = read_file(argv[f], &n);

		if (!count)
			mutate(data, n, false);
		for (unsigned k = 0; k < count; k++)
			mutate(data, n, true);
		free(data);
	}
	printf("%u loaded, %u ran\n", loaded, ran);
	return 0;
}
