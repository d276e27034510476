/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. The session has it when the driver has flushed it, and says so with its next reply; it is then
 * fetched and written here, to this process's own standard output and error, before that call returns to the program.
 */
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim.h"

enum {
	BLOCKED_MS = 1000,       /* for a descriptor that does not block, and takes nothing */
	END_MS = 2000,           /* for all that waits when the process ends */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the order of what is written */
static _Atomic bool expected;                            /* kernels may have run */
static __thread bool fetching;

static void write_all(int fd, const uint8_t *text, size_t length)
{
	struct pollfd room = { .fd = fd, .events = POLLOUT };

	while (length) {
		ssize_t n = write(fd, text, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && poll(&room, 1, BLOCKED_MS) > 0)
			continue;
		if (n <= 0)
			return;
		text += n;
		length -= (size_t)n;
	}
}

static void say_lost(uint64_t lost)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (lost && shim_is_news(&said))
		dprintf(STDERR_FILENO, "vgpumgr: %llu bytes that kernels printed are lost: more came than the host keeps\n",
			(unsigned long long)lost);
}

/* Under the lock; whether there is, or may soon be, more. */
static bool fetch(struct vg_output_next_reply *out)
{
	if (vg_send_output_next(out) != CUDA_SUCCESS)
		return false;
	if (out->output_length) {
		fflush(stdout); /* what the program has printed before stands before it */
		write_all(STDOUT_FILENO, out->output, out->output_length);
	}
	write_all(STDERR_FILENO, out->errors, out->errors_length);
	say_lost(out->lost);
	return out->more;
}

/* All that there is; whether there may soon be more: what is on its way to its end may flush. */
static bool fetch_all(unsigned channel)
{
	SHIM_TURN(turn, shim_turn_to_channel(channel));
	struct vg_output_next_reply *out;
	int saved = errno;
	bool more = false;

	if (fetching)
		return false;
	out = malloc(sizeof(*out));
	fetching = true;
	pthread_mutex_lock(&lock);
	while (out && (more = fetch(out)) && (out->output_length || out->errors_length))
		;
	pthread_mutex_unlock(&lock);
	fetching = false;
	free(out);
	errno = saved;
	return more;
}

void shim_output_fetch(unsigned channel)
{
	fetch_all(channel);
}

/* Another thread of the parent may have held the lock. */
static void child(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&expected, false);
}

void shim_output_expect(void)
{
	static atomic_flag watches_forks = ATOMIC_FLAG_INIT; /* no pthread_once: see transport/conn_open.c */

	if (!atomic_flag_test_and_set(&watches_forks))
		pthread_atfork(NULL, NULL, child);
	atomic_store_explicit(&expected, true, memory_order_relaxed);
}

static void end_channel(unsigned channel)
{
	/* of no event: it is refused, but behind what the worker does later, as the unloading of a module, which flushes */
	struct vg_cuEventQuery_request behind = { 0 };
	SHIM_TURN(turn, shim_turn_to_channel(channel));

	vg_send_cuEventQuery(&behind);
	for (unsigned i = 0; i < END_MS && fetch_all(channel); i++)
		usleep(1000);
}

/* What the driver has flushed and no call has brought yet. As with the vendor's driver, an end is no synchronisation. */
__attribute__((destructor)) static void end(void)
{
	struct vg_conn *conn;

	if (!atomic_load(&expected))
		return;
	for (unsigned i = 0; i < SHIM_CHANNELS; i++) {
		conn = shim_open_conn(i);
		if (!conn)
			continue;
		vg_conn_hurry(conn, END_MS);
		end_channel(i);
	}
}
