/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floor for any call through shared memory: two threads of two processes hand a word to and fro, nothing else. Both
 * spin a little, then yield, as the channel does, so that the ratio compares protocols and not waiting policies.
 * usage: vgpumgr-bench-pingpong [TRIPS]; prints nanoseconds a round trip. The same binary runs in a guest against
 * nothing but itself.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 300 };

struct words {
	_Alignas(128) _Atomic unsigned there;
	_Alignas(128) _Atomic unsigned back;
};

static void await(_Atomic unsigned *word, unsigned value)
{
	for (unsigned round = 0; atomic_load_explicit(word, memory_order_acquire) != value; round++) {
		if (round > SPINS)
			sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void echo(struct words *words, unsigned trips)
{
	for (unsigned i = 1; i <= trips; i++) {
		await(&words->there, i);
		atomic_store_explicit(&words->back, i, memory_order_release);
	}
}

int main(int argc, char **argv)
{
	unsigned trips = argc > 1 ? (unsigned)atoi(argv[1]) : 200000;
	struct words *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = words == MAP_FAILED ? -1 : fork();
	double start;

	if (child < 0)
		return 1;
	if (!child) {
		echo(words, trips);
		return 0;
	}
	start = now_ns();
	for (unsigned i = 1; i <= trips; i++) {
		atomic_store_explicit(&words->there, i, memory_order_release);
		await(&words->back, i);
	}
	printf("%.1f\n", (now_ns() - start) / trips);
	waitpid(child, NULL, 0);
	return 0;
}
