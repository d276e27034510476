/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel's numbers from a process that has a lane of the test worker (tests/native/transport/echo_worker.c).
 * usage: vgpumgr-bench-channel call|post|copy [COUNT]
 *   call  nanoseconds a synchronous call of 16 bytes
 *   post  posts a second
 *   copy  bytes a second to the worker's memory in 16 MiB pieces, and those of a plain memcpy, interleaved
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <echo.h>

enum { PIECE = 16 << 20 };

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int call_once(struct vg_conn *conn)
{
	struct vg_frame frame;
	struct vg_reply reply;
	int error = vg_begin(conn, ECHO_NULL, 16, VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	memset(frame.payload, 0, 16);
	error = vg_call(conn, &frame, &reply);
	if (!error)
		vg_reply_done(conn, &reply);
	return error;
}

static int post_once(struct vg_conn *conn)
{
	struct vg_frame frame;
	int error = vg_begin(conn, ECHO_NULL, 16, VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	memset(frame.payload, 0, 16);
	return vg_post(conn, &frame);
}

static int by_value(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

/* The median of rounds: a round in which the scheduler put both sides on one core says nothing about the channel. */
static int measure_call(struct vg_conn *conn, unsigned count)
{
	enum { ROUNDS = 11 };
	double round[ROUNDS];
	int error = 0;

	for (unsigned r = 0; r < ROUNDS && !error; r++) {
		double start = now_ns();

		for (unsigned i = 0; i < count / ROUNDS && !error; i++)
			error = call_once(conn);
		round[r] = (now_ns() - start) / (count / ROUNDS);
	}
	qsort(round, ROUNDS, sizeof(round[0]), by_value);
	printf("%.1f\n", round[ROUNDS / 2]);
	return error;
}

static int measure_post(struct vg_conn *conn, unsigned count)
{
	double start = now_ns();
	int error = 0;

	for (unsigned i = 0; i < count && !error; i++)
		error = post_once(conn);
	if (!error)
		error = call_once(conn); /* all of them have been executed */
	printf("%.0f\n", count / (now_ns() - start) * 1e9);
	return error;
}

static int store(struct vg_conn *conn, const uint8_t *from, uint64_t length)
{
	size_t most = vg_conn_piece(conn);

	for (uint64_t at = 0; at < length;) {
		size_t part = length - at < most ? length - at : most;
		struct vg_frame frame;
		int error = vg_begin(conn, ECHO_STORE, sizeof(at), VG_BULK_TO_WORKER, part, &frame);

		if (error)
			return error;
		memcpy(frame.payload, &at, sizeof(at));
		memcpy(frame.bulk, from + at, part);
		error = vg_post(conn, &frame);
		if (error)
			return error;
		at += part;
	}
	return call_once(conn);
}

static int measure_copy(struct vg_conn *conn, unsigned count)
{
	uint8_t *from = malloc(PIECE), *to = malloc(PIECE);
	double channel = 1e18, plain = 1e18; /* the best round of each: what the machine can do */
	int error = from && to ? 0 : -1;

	if (!error) {
		memset(from, 1, PIECE);
		memset(to, 2, PIECE);
		error = store(conn, from, PIECE);
	}
	for (unsigned i = 0; i < count && !error; i++) {
		double start = now_ns(), took;

		error = store(conn, from, PIECE);
		took = now_ns() - start;
		channel = took < channel ? took : channel;
		from[i % PIECE]++;
		start = now_ns();
		memcpy(to, from, PIECE);
		__asm__ volatile("" ::"r"(to) : "memory");
		took = now_ns() - start;
		plain = took < plain ? took : plain;
	}
	printf("%.0f %.0f\n", PIECE / channel * 1e9, PIECE / plain * 1e9);
	free(from);
	free(to);
	return error;
}

int main(int argc, char **argv)
{
	unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	struct vg_conn *conn;
	int error;

	error = vg_conn_open(echo_interface(1), "1.0.0", &conn);
	if (error) {
		fprintf(stderr, "%s\n", vg_conn_error());
		return 1;
	}
	if (argc > 1 && !strcmp(argv[1], "call"))
		error = measure_call(conn, count ? count : 200000);
	else if (argc > 1 && !strcmp(argv[1], "post"))
		error = measure_post(conn, count ? count : 2000000);
	else if (argc > 1 && !strcmp(argv[1], "copy"))
		error = measure_copy(conn, count ? count : 20);
	else
		error = -1;
	vg_conn_close(conn);
	return error ? 1 : 0;
}
