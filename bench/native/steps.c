/* SPDX-License-Identifier: Apache-2.0 */
#include "steps.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNTS = 101 };

void steps_mark(void)
{
#if defined(__x86_64__)
	__asm__ volatile("int3" ::: "memory");
#endif
}

/* A mark, and no step: as the kernel says. */
static bool is_mark(pid_t child)
{
	siginfo_t why;

	return !ptrace(PTRACE_GETSIGINFO, child, NULL, &why) && why.si_code == SI_KERNEL;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

static int watch(pid_t child, long *counts, int most)
{
	bool counting = false;
	int status, n = 0;
	long steps = 0;

	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		int signal = WSTOPSIG(status);

		if (signal != SIGTRAP) {
			ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, (void *)(long)(signal == SIGSTOP ? 0 : signal));
			continue;
		}
		if (!is_mark(child)) {
			steps++;
		} else {
			if (counting && n < most)
				counts[n++] = steps;
			counting = !counting;
			steps = 0;
		}
		ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL);
	}
	return WIFEXITED(status) && !WEXITSTATUS(status) ? n : 0;
}

long steps_count(void (*run)(const char *), const char *argument, int most)
{
	long counts[COUNTS];
	pid_t child = fork();
	int n;

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		run(argument);
		_exit(0);
	}
	n = child > 0 ? watch(child, counts, most < COUNTS ? most : COUNTS) : 0;
	qsort(counts, (size_t)n, sizeof(*counts), compare);
	return n ? counts[n / 2] : -1;
}
