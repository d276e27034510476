/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes with threads charge and refund one table of limits, and count beside it what they were granted: that must
 * never be more than the limit. Now and then one is killed, and the server's part clears its row. charges SECONDS
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/worker_limits.h"

enum { PROCESSES = 4, THREADS = 3, LIMIT = 1000, MOST = 400 };

struct beside {
	_Atomic int64_t granted[PROCESSES]; /* of each process: never more than it holds */
	_Atomic uint64_t exceeded, charges, refusals;
};

static struct beside *beside;

static int64_t count_granted(void)
{
	int64_t sum = 0;

	for (int i = 0; i < PROCESSES; i++)
		sum += beside->granted[i];
	return sum;
}

static void *race(void *argument)
{
	int process = *(int *)argument;
	unsigned chance = (unsigned)time(NULL) * 31 + (unsigned)(size_t)&chance + (unsigned)getpid();

	for (;;) {
		int64_t amount = 1 + rand_r(&chance) % MOST;

		if (!vg_charge(VG_LIMIT_EVENTS, (uint64_t)amount)) {
			beside->refusals++;
			continue;
		}
		beside->charges++;
		beside->granted[process] += amount;
		if (count_granted() > LIMIT)
			beside->exceeded++;
		beside->granted[process] -= amount;
		vg_refund(VG_LIMIT_EVENTS, (uint64_t)amount);
	}
	return NULL;
}

static pid_t start(int process)
{
	pid_t pid = fork();
	pthread_t thread;

	if (pid)
		return pid;
	vg_limits_use((uint32_t)process + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, race, &process);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char option[] = VG_OPTION_LIMITS "events:1000", *words[] = { argv[0], option };
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
	pid_t pids[PROCESSES];
	unsigned kills = 0;

	beside = mmap(NULL, sizeof(*beside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vg_limits_read(2, words) || vg_limits_make() < 0)
		return 2;
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = start(i);
	while (time(NULL) < end) {
		int i = rand() % PROCESSES;

		usleep((unsigned)(rand() % 4000));
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		beside->granted[i] = 0;
		vg_limits_drop((uint32_t)i + 1);
		kills++;
		pids[i] = start(i);
	}
	for (int i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		vg_limits_drop((uint32_t)i + 1);
	}
	printf("%lu charges, %lu refused, %u kills, %lu exceeded, %lu left\n", (unsigned long)beside->charges,
	       (unsigned long)beside->refusals, kills, (unsigned long)beside->exceeded,
	       (unsigned long)vg_limit_used(VG_LIMIT_EVENTS));
	return beside->exceeded || vg_limit_used(VG_LIMIT_EVENTS) || beside->charges < 1000 || beside->refusals < 1000;
}
