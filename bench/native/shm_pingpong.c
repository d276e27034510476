/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor below a forwarded call from a guest: one word handed to and fro through the shared memory between a guest
 * and its host. usage: vgpumgr-bench-shm echo FILE (host; until killed), or: measure FILE [TRIPS] (guest), which prints
 * nanoseconds a round trip of the best block of them. Both sides spin, and yield now and then so that a machine with few cores goes on.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct words {
	_Alignas(128) _Atomic unsigned there;
	_Alignas(128) _Atomic unsigned back;
};

enum { SPINS = 2000, BLOCK = 500 };

/* Waits until the word differs from `old`; returns what it is then. */
static unsigned await_change(_Atomic unsigned *word, unsigned old)
{
	unsigned now;

	for (unsigned round = 1; (now = atomic_load_explicit(word, memory_order_acquire)) == old; round++)
		if (round % SPINS == 0)
			sched_yield();
	return now;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void echo(struct words *words)
{
	for (unsigned last = atomic_load(&words->there);;) {
		last = await_change(&words->there, last);
		atomic_store_explicit(&words->back, last, memory_order_release);
	}
}

static void measure(struct words *words, unsigned trips)
{
	unsigned value = atomic_load(&words->back);
	double best = 1e12;

	for (unsigned done = 0; done < trips; done += BLOCK) {
		double start = now_ns(), took;

		for (unsigned i = 0; i < BLOCK; i++) {
			atomic_store_explicit(&words->there, value + 1, memory_order_release);
			value = await_change(&words->back, value);
		}
		took = (now_ns() - start) / BLOCK;
		best = took < best ? took : best;
	}
	printf("%.1f\n", best);
}

int main(int argc, char **argv)
{
	int fd = argc > 2 ? open(argv[2], O_RDWR | O_CLOEXEC) : -1;
	struct words *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (words == MAP_FAILED) {
		perror("shared memory");
		return 1;
	}
	if (!strcmp(argv[1], "echo"))
		echo(words);
	measure(words, argc > 3 ? (unsigned)atoi(argv[3]) : 200000);
	return 0;
}
