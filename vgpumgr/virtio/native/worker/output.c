/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver writes to standard output and error belongs to the guest process: printf of kernels, failed assertions.
 * Both are pipes of this process, whose ends it reads itself; what it has read is kept, within bounds, until the guest
 * fetches it. A thread empties standard output, so that no amount of it holds up the driver. Standard error is read only
 * after a call that waits for the device: what a process says when it crashes then stays in the pipe, for the server.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "worker.h"

enum {
	MOST = 4 << 20,          /* kept of a stream; what comes then is dropped and counted */
	PIECE = 16 << 10,
	AT_ONCE = 64,            /* pieces: a driver that never stops writing must not hold up an answer */
	PIPE_BYTES = 1 << 20,
};

struct stream {
	int fd;                  /* the pipe's end that is read; -1: none */
	uint8_t *text;
	size_t start, used, room;
	bool full;               /* something has been dropped since it was last fetched: nothing more is kept */
};

static struct {
	pthread_mutex_t lock;
	struct stream stream[2]; /* standard output, error */
	uint64_t lost;
	struct vg_lane *lane;
	_Atomic bool expected;   /* a function has been looked up: before that, nothing is printed */
} output = { .lock = PTHREAD_MUTEX_INITIALIZER, .stream = { { .fd = -1 }, { .fd = -1 } } };

/* ---- under the lock ---- */

static bool make_room(struct stream *s, size_t length)
{
	size_t room = s->room ? s->room : PIECE;
	uint8_t *text;

	if (s->start) {
		memmove(s->text, s->text + s->start, s->used);
		s->start = 0;
	}
	while (room < s->used + length)
		room *= 2;
	if (room == s->room)
		return true;
	text = realloc(s->text, room);
	if (!text)
		return false;
	s->text = text;
	s->room = room;
	return true;
}

/* What does not fit is dropped from the beginning of a line on, if there is one. */
static size_t what_fits(const struct stream *s, const uint8_t *bytes, size_t length)
{
	const uint8_t *end;

	if (s->full)
		return 0;
	if (length <= MOST - s->used)
		return length;
	end = memrchr(bytes, '\n', MOST - s->used);
	return end ? (size_t)(end + 1 - bytes) : MOST - s->used;
}

static void keep(struct stream *s, const uint8_t *bytes, size_t length)
{
	size_t fits = what_fits(s, bytes, length);

	if (s->start + s->used + fits > s->room && !make_room(s, fits))
		fits = 0;
	if (fits)
		memcpy(s->text + s->start + s->used, bytes, fits);
	s->used += fits;
	s->full = fits < length;
	output.lost += length - fits;
}

static bool waits(void)
{
	return output.stream[0].used || output.stream[1].used || output.lost;
}

static void pull(struct stream *s)
{
	static uint8_t piece[PIECE];
	ssize_t n = 1;

	for (unsigned i = 0; s->fd >= 0 && i < AT_ONCE && n > 0; i++) {
		n = read(s->fd, piece, sizeof(piece));
		if (n > 0)
			keep(s, piece, (size_t)n);
	}
	if (output.lane)
		vg_lane_output(output.lane, waits());
}

/* ---- the pipes ---- */

static void *watch(void *unused)
{
	struct pollfd wait = { .fd = output.stream[0].fd, .events = POLLIN };

	while (poll(&wait, 1, -1) >= 0 || errno == EINTR) {
		if (wait.revents & ~POLLIN) /* the driver has closed its end */
			break;
		pthread_mutex_lock(&output.lock);
		pull(&output.stream[0]);
		pthread_mutex_unlock(&output.lock);
	}
	return unused;
}

static void start_thread(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	/* from now on the driver may wait for room: somebody makes it. Without a thread it never does */
	if (!pthread_create(&thread, &attributes, watch, NULL))
		fcntl(STDOUT_FILENO, F_SETFL, 0);
	pthread_attr_destroy(&attributes);
}

void wk_output_open(int errors)
{
	int pair[2];

	if (!fcntl(errors, F_SETFD, FD_CLOEXEC))
		output.stream[1].fd = errors;
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK))
		return;
	fcntl(pair[1], F_SETPIPE_SZ, PIPE_BYTES); /* less, where a user may not have so much */
	dup2(pair[1], STDOUT_FILENO);
	close(pair[1]);
	output.stream[0].fd = pair[0];
}

size_t wk_output_begin(char *said, size_t size)
{
	size_t length;

	fflush(stdout);
	pthread_mutex_lock(&output.lock);
	for (int i = 0; i < 2; i++)
		pull(&output.stream[i]);
	length = output.stream[1].used < size - 1 ? output.stream[1].used : size - 1;
	if (length)
		memcpy(said, output.stream[1].text + output.stream[1].start, length);
	said[length] = '\0';
	output.stream[0].used = output.stream[1].used = 0;
	output.lost = 0;
	pthread_mutex_unlock(&output.lock);
	if (output.stream[0].fd >= 0)
		start_thread();
	return length;
}

/* ---- a session ---- */

void wk_output_serve(struct vg_lane *lane)
{
	pthread_mutex_lock(&output.lock);
	output.lane = lane;
	pthread_mutex_unlock(&output.lock);
}

void wk_output_expect(void)
{
	atomic_store_explicit(&output.expected, true, memory_order_relaxed);
}

void wk_output_settle(void)
{
	struct pollfd wait[2];

	if (!atomic_load_explicit(&output.expected, memory_order_relaxed))
		return;
	fflush(stdout); /* not under the lock: it may wait for the thread that takes it */
	pthread_mutex_lock(&output.lock);
	for (int i = 0; i < 2; i++)
		wait[i] = (struct pollfd){ .fd = output.stream[i].fd, .events = POLLIN };
	if (poll(wait, 2, 0) > 0)
		for (int i = 0; i < 2; i++)
			pull(&output.stream[i]);
	pthread_mutex_unlock(&output.lock);
}

static size_t take(struct stream *s, uint8_t *to, size_t room)
{
	size_t length = s->used < room ? s->used : room;

	if (length)
		memcpy(to, s->text + s->start, length);
	s->start += length;
	s->used -= length;
	s->full = false;
	if (!s->used) { /* memory is given back: output is rare */
		free(s->text);
		s->text = NULL;
		s->start = s->room = 0;
	}
	return length;
}

bool wk_output_take(struct wk_output *to)
{
	bool more;

	pthread_mutex_lock(&output.lock);
	to->length[0] = take(&output.stream[0], to->text[0], to->room);
	to->length[1] = take(&output.stream[1], to->text[1], to->room);
	to->lost = output.lost;
	output.lost = 0;
	more = waits();
	if (output.lane)
		vg_lane_output(output.lane, more);
	pthread_mutex_unlock(&output.lock);
	return more;
}
