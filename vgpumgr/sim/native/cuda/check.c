/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VGPUMGR_SIM_CHECK=memory,race,sync: the interpreter looks at what kernels do (ptx/check.h). Here is what it is told of memory:
 * what has been written, what was freed, and what lies near an address; and what the process says and answers at its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_sim.h"

enum { FREED = 1024, PAGE = 4096, NEAR = 1 << 30 };

static const struct {
	const char *name;
	uint32_t checks;
} words[] = {
	{ "memory", PTX_CHECK_MEMORY },
	{ "race", PTX_CHECK_RACE },
	{ "sync", PTX_CHECK_SYNC },
	{ "all", PTX_CHECK_MEMORY | PTX_CHECK_RACE | PTX_CHECK_SYNC },
};

static int exit_code;
static pid_t process; /* a child that was forked says nothing */
static bool told;

/* ---- what is asked for */

static void say_once(const char *variable, const char *word, const char *right)
{
	if (!told)
		fprintf(stderr, "simulated GPU: %s has '%s'; it takes %s\n", variable, word, right);
	told = true;
}

static uint32_t word_checks(const char *word)
{
	for (size_t k = 0; k < sizeof words / sizeof *words; k++)
		if (!strcmp(words[k].name, word))
			return words[k].checks;
	say_once("VGPUMGR_SIM_CHECK", word, "memory, race and sync, with commas between, or all");
	return 0;
}

static bool read_checks(uint32_t *checks)
{
	const char *wish = getenv("VGPUMGR_SIM_CHECK");
	char list[128], *rest = list, *word;

	*checks = 0;
	if (!wish || !*wish)
		return true;
	snprintf(list, sizeof list, "%s", wish);
	while ((word = strsep(&rest, ","))) {
		uint32_t more = word_checks(word);

		if (!more)
			return false;
		*checks |= more;
	}
	return true;
}

static bool read_exit(void)
{
	const char *wish = getenv("VGPUMGR_SIM_CHECK_EXIT");
	char *end;
	long n;

	if (!wish || !*wish)
		return true;
	n = strtol(wish, &end, 10);
	if (*end || n < 0 || n > 255) {
		say_once("VGPUMGR_SIM_CHECK_EXIT", wish, "a number up to 255");
		return false;
	}
	exit_code = (int)n;
	return true;
}

/* The interpreter reads it when it decodes (ptx/worst.c). */
static bool read_approx(void)
{
	const char *wish = getenv("VGPUMGR_SIM_APPROX");

	if (!wish || !*wish || !strcmp(wish, "worst"))
		return true;
	say_once("VGPUMGR_SIM_APPROX", wish, "worst, or is not set");
	return false;
}

/* ---- what was written */

static void check_reserve(struct device *dev)
{
	size_t bytes = dev->va_used.n * (size_t)GRANULE;
	void *p;

	if (!(drv.checks & PTX_CHECK_MEMORY))
		return;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	dev->written = p == MAP_FAILED ? NULL : p; /* without it reads are not judged */
}

static uint8_t *map_of(uint64_t addr)
{
	for (int i = 0; i < drv.n_devices; i++) {
		const struct device *d = &drv.devices[i];

		if (d->written && addr - d->va_base < (uint64_t)d->va_used.n * GRANULE)
			return d->written + (addr - d->va_base);
	}
	return NULL;
}

/* Variables of modules are written when they are loaded; managed memory also by the program, unseen by the driver. */
static bool is_judged(const struct allocation *a)
{
	return a->kind == ALLOCATION_DEVICE && !a->of_module && !a->managed;
}

uint8_t *check_written(void *ctx, uint64_t addr)
{
	struct allocation a;

	(void)ctx;
	return vm_find(addr, &a) && is_judged(&a) ? map_of(addr) : NULL;
}

static void check_allocated(const struct allocation *a)
{
	uint8_t *map = map_of(a->addr);

	if (map && a->size >= PAGE && !((uint64_t)map % PAGE))
		madvise(map, (a->size + PAGE - 1) / PAGE * PAGE, MADV_DONTNEED);
	else if (map)
		memset(map, 0, a->size);
}

void check_filled(uint64_t addr, size_t bytes)
{
	uint8_t *map = map_of(addr);

	if (map)
		memset(map, 1, bytes);
}

static void copied(uint8_t *to, const uint8_t *from, bool judged, size_t bytes)
{
	uint8_t *map = map_of((uint64_t)to), *source = judged ? map_of((uint64_t)from) : NULL;

	if (map && source)
		memmove(map, source, bytes);
	else if (map)
		memset(map, 1, bytes);
}

void check_copied(const struct copy *c)
{
	struct allocation a;
	bool judged = !c->src.host && vm_find((uint64_t)c->src.base, &a) && is_judged(&a);

	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < c->height; y++)
			copied(c->dst.base + z * c->dst.slice + y * c->dst.pitch, c->src.base + z * c->src.slice + y * c->src.pitch,
			       judged, c->width);
}

/* ---- where an address lies */

static pthread_mutex_t freed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t addr, size;
} freed[FREED]; /* the last ones, in a ring */
static size_t n_freed;

static void check_freed(const struct allocation *a)
{
	pthread_mutex_lock(&freed_lock);
	freed[n_freed % FREED].addr = a->addr;
	freed[n_freed++ % FREED].size = a->size;
	pthread_mutex_unlock(&freed_lock);
}

static void check_lent(const struct allocation *a)
{
	check_filled(a->addr, a->size);
}

static const struct vm_watch watch = { check_reserve, check_allocated, check_freed, check_lent };

CUresult check_init(void)
{
	process = getpid();
	if (!read_checks(&drv.checks) || !read_exit() || !read_approx())
		return CUDA_ERROR_INVALID_VALUE;
	vm_watch = drv.checks ? &watch : NULL;
	return CUDA_SUCCESS;
}

static bool describe_freed(uint64_t addr, char *text, size_t length)
{
	bool found = false;
	size_t oldest;

	pthread_mutex_lock(&freed_lock);
	oldest = n_freed > FREED ? n_freed - FREED : 0;
	for (size_t n = n_freed; n > oldest && !found; n--) {
		uint64_t start = freed[(n - 1) % FREED].addr, size = freed[(n - 1) % FREED].size;

		found = addr - start < size;
		if (found)
			snprintf(text, length, "byte %llu of an allocation of %llu bytes at 0x%llx that was freed",
				 (unsigned long long)(addr - start), (unsigned long long)size, (unsigned long long)start);
	}
	pthread_mutex_unlock(&freed_lock);
	return found;
}

static void describe_near(uint64_t addr, char *text, size_t length)
{
	struct allocation below = { .size = 0 }, above = { .size = 0 }, *nearest = &below;
	uint64_t behind, before;

	vm_neighbours(addr, &below, &above);
	behind = below.size ? addr - (below.addr + below.size) : UINT64_MAX;
	before = above.size ? above.addr - addr : UINT64_MAX;
	if (before < behind)
		nearest = &above;
	if (addr < PAGE)
		snprintf(text, length, "a null pointer");
	else if (before > NEAR && behind > NEAR)
		snprintf(text, length, "no memory that the GPU can reach");
	else
		snprintf(text, length, "%llu bytes %s an allocation of %llu bytes at 0x%llx",
			 (unsigned long long)(nearest == &above ? before : behind), nearest == &above ? "before" : "behind",
			 (unsigned long long)nearest->size, (unsigned long long)nearest->addr);
}

void check_describe(void *ctx, uint64_t addr, uint32_t size, char *text, size_t length)
{
	struct allocation a;

	if (!vm_find(addr, &a)) {
		if (!describe_freed(addr, text, length))
			describe_near(addr, text, length);
		return;
	}
	snprintf(text, length, "byte %llu of %s of %llu bytes at 0x%llx%s", (unsigned long long)(addr - a.addr),
		 a.of_module ? "a variable" : "an allocation", (unsigned long long)a.size, (unsigned long long)a.addr,
		 a.ctx != ctx	      ? ", of another context" :
		 addr - a.addr + size > a.size ? ", beyond its end" :
						 "");
}

/* ---- the end */

static void say_left(const struct context *ctx, const char *when)
{
	uint64_t bytes = 0;
	size_t n = vm_count(ctx, &bytes);

	if (n)
		fprintf(stderr, "========= memory: %zu allocation%s, %llu bytes, not freed when %s ended\n", n, n == 1 ? "" : "s",
			(unsigned long long)bytes, when);
}

void check_context_end(const struct context *ctx)
{
	if (drv.checks & PTX_CHECK_MEMORY)
		say_left(ctx, "the context");
}

/* After the program's own functions of atexit: only destructors of libraries follow. */
__attribute__((destructor)) static void finish(void)
{
	uint64_t n = ptx_findings();

	if (!drv.checks || !drv.initialised || getpid() != process)
		return;
	for (const struct context *c = drv.contexts; c && drv.checks & PTX_CHECK_MEMORY; c = c->next)
		say_left(c, "the program");
	fprintf(stderr, "========= vgpumgr-sim-check: %llu finding%s\n", (unsigned long long)n, n == 1 ? "" : "s");
	if (!n || !exit_code)
		return;
	fflush(NULL);
	_exit(exit_code);
}
