/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes with threads charge and refund one table of limits, and count beside it what they were granted: that must
 * never be more than the limit. Now and then one is killed, and the server's part clears its row. charges SECONDS
 *
 * charges SECONDS changing: the limit changes meanwhile, and a change that was accepted holds from then on; some are
 * refused, and leave the limit as it was.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/worker_limits.h"

enum { PROCESSES = 4, THREADS = 3, LIMIT = 1000, MOST = 400, PART = 16, PART_MASK = (1 << PART) - 1 };

struct beside {
	_Atomic uint64_t granted; /* PART bits for each process: never more than it holds, and all are read in one moment */
	_Atomic uint64_t exceeded, charges, refusals;
};

static struct beside *beside;
static enum vg_limit what = VG_LIMIT_EVENTS;

static uint64_t sum_parts(uint64_t granted)
{
	uint64_t sum = 0;

	for (; granted; granted >>= PART)
		sum += granted & PART_MASK;
	return sum;
}

static void *race(void *argument)
{
	int process = *(int *)argument;
	unsigned chance = (unsigned)time(NULL) * 31 + (unsigned)(size_t)&chance + (unsigned)getpid();

	for (;;) {
		uint64_t amount = 1 + (uint64_t)rand_r(&chance) % MOST, part = amount << process * PART;

		if (!vg_charge(what, amount)) {
			beside->refusals++;
			continue;
		}
		beside->charges++;
		if (sum_parts(atomic_fetch_add(&beside->granted, part) + part) > LIMIT && what == VG_LIMIT_EVENTS)
			beside->exceeded++;
		/* a grant that lasts: else the other threads seldom meet it */
		if (amount % 4 == 0)
			sched_yield();
		atomic_fetch_sub(&beside->granted, part);
		vg_refund(what, amount);
	}
	return NULL;
}

static pid_t start(int process)
{
	pid_t pid = fork();
	pthread_t thread;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	vg_limits_use((uint32_t)process + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, race, &process);
	for (;;)
		pause();
}

/* Its part goes before its row: the others are granted what its row held as soon as that is clear. */
static void end_process(pid_t pid, int process)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	atomic_fetch_and(&beside->granted, ~((uint64_t)PART_MASK << process * PART));
	vg_limits_drop((uint32_t)process + 1);
}

struct changes {
	unsigned accepted, refused, wrong;
};

/* What is granted is read after the answer: until the next change it must not be more than the limit. */
static void change(struct changes *changes, uint64_t *limit)
{
	uint64_t wanted = 200 + (uint64_t)rand() % 1300;

	if (!vg_limits_change_memory(wanted)) {
		*limit = wanted;
		changes->accepted++;
	} else {
		changes->refused++;
	}
	changes->wrong += vg_limit(what) != *limit;
	for (int i = 0; i < 200; i++)
		changes->wrong += sum_parts(atomic_load(&beside->granted)) > *limit;
}

int main(int argc, char **argv)
{
	bool changing = argc > 2;
	char option[] = VG_OPTION_LIMITS "events:1000,device-memory:1000", *words[] = { argv[0], option };
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
	pid_t pids[PROCESSES];
	struct changes changes = { 0 };
	uint64_t limit = LIMIT;
	unsigned kills = 0;

	if (changing)
		what = VG_LIMIT_DEVICE_MEMORY;
	beside = mmap(NULL, sizeof(*beside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vg_limits_read(2, words) || vg_limits_make() < 0)
		return 2;
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = start(i);
	while (time(NULL) < end) {
		int i = rand() % PROCESSES;

		usleep((unsigned)(rand() % 4000));
		for (int j = 0; changing && j < 20; j++)
			change(&changes, &limit);
		end_process(pids[i], i);
		kills++;
		pids[i] = start(i);
	}
	for (int i = 0; i < PROCESSES; i++)
		end_process(pids[i], i);
	printf("%lu charges, %lu refused, %u kills, %lu exceeded, %lu left\n", (unsigned long)beside->charges,
	       (unsigned long)beside->refusals, kills, (unsigned long)beside->exceeded,
	       (unsigned long)vg_limit_used(what));
	if (changing)
		printf("%u changes, %u refused, %u wrong\n", changes.accepted, changes.refused, changes.wrong);
	if (changing && (changes.wrong || changes.accepted < 100 || changes.refused < 10))
		return 1;
	return beside->exceeded || vg_limit_used(what) || beside->charges < 1000 || beside->refusals < 1000;
}
