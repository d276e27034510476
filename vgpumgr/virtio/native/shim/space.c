/* SPDX-License-Identifier: Apache-2.0 */
/* See space.h. Mappings without access, which cost no memory; neighbours become one in the kernel as in the books here. */
#include "space.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { PAGE = 4096 };

struct span {
	uint64_t start, end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct span *spans; /* sorted, apart from each other */
static size_t count, room;

/* The number of spans that end before the address. */
static size_t before(uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (spans[middle].end < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool make_room(void)
{
	size_t more = room ? room * 2 : 64;
	struct span *grown;

	if (count < room)
		return true;
	grown = realloc(spans, more * sizeof(*grown));
	if (!grown)
		return false;
	spans = grown;
	room = more;
	return true;
}

/* Under the lock: joins what it touches. */
static void note(uint64_t start, uint64_t end)
{
	size_t at = before(start), last = at;

	while (last < count && spans[last].start <= end) {
		start = spans[last].start < start ? spans[last].start : start;
		end = spans[last].end > end ? spans[last].end : end;
		last++;
	}
	if (last == at) {
		memmove(&spans[at + 1], &spans[at], (count++ - at) * sizeof(*spans));
	} else {
		memmove(&spans[at + 1], &spans[last], (count - last) * sizeof(*spans));
		count -= last - at - 1;
	}
	spans[at] = (struct span){ start, end };
}

/* Where no program can have anything, or where the kernel has no room for it in its books, there is nothing to do. */
static bool map(uint64_t start, uint64_t end)
{
	const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	/* not by the C library: a sanitizer's mmap() ends the program where it has a plan of its own for the addresses */
	long at = syscall(SYS_mmap, start, end - start, PROT_NONE, how, -1, 0);

	if (at == (long)start)
		return true;
	if (at == -1)
		return errno != EEXIST;
	syscall(SYS_munmap, at, end - start); /* before Linux 4.17 the address is a wish */
	return false;
}

static bool unmap(uint64_t start, uint64_t end)
{
	syscall(SYS_munmap, start, end - start);
	return true;
}

/* Under the lock: does it with each part that is not ours yet. Where it did not succeed, or the end. */
static uint64_t each_gap(uint64_t start, uint64_t end, bool (*act)(uint64_t start, uint64_t end))
{
	for (size_t at = before(start); start < end; start = spans[at++].end) {
		uint64_t until = at < count && spans[at].start < end ? spans[at].start : end;

		if (until > start && !act(start, until))
			return start;
		if (until == end)
			return end;
	}
	return end;
}

bool shim_space_take(uint64_t start, uint64_t bytes)
{
	uint64_t first = start & ~(uint64_t)(PAGE - 1), end = (start + bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1), stopped;

	if (end <= first)
		return true;
	pthread_mutex_lock(&lock);
	stopped = make_room() ? each_gap(first, end, map) : end;
	if (stopped < end)
		each_gap(first, stopped, unmap);
	else if (count < room)
		note(first, end);
	pthread_mutex_unlock(&lock);
	return stopped == end;
}

/* Under the lock: cuts a piece out of a span; what is behind it is forgotten if there is no room for it. */
static void cut(size_t at, uint64_t start, uint64_t end)
{
	struct span old = spans[at];

	unmap(start, end);
	if (old.start < start && end < old.end && make_room()) {
		memmove(&spans[at + 1], &spans[at], (count++ - at) * sizeof(*spans));
		spans[at].end = start;
		spans[at + 1].start = end;
	} else if (old.start < start) {
		spans[at].end = start;
	} else if (end < old.end) {
		spans[at].start = end;
	} else {
		memmove(&spans[at], &spans[at + 1], (--count - at) * sizeof(*spans));
	}
}

void shim_space_give(uint64_t start, uint64_t bytes)
{
	uint64_t end = start + bytes;

	pthread_mutex_lock(&lock);
	for (size_t at = before(start); at < count && spans[at].start < end;) {
		uint64_t first = spans[at].start > start ? spans[at].start : start;
		uint64_t last = spans[at].end < end ? spans[at].end : end;
		size_t had = count;

		if (last > first)
			cut(at, first, last);
		at += last <= first || count >= had; /* else the next one has its place */
	}
	pthread_mutex_unlock(&lock);
}
