/* SPDX-License-Identifier: Apache-2.0 */
/* A guest process: each argument is a step, "ok STEP" is printed after it; the first failure ends with its message. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../vgpumgr/virtio/native/transport/conn.h"
#include "echo.h"

static struct vg_conn *conn;

static int send_number(uint32_t op, uint64_t value, bool wait, int *status, uint64_t *result)
{
	struct vg_frame frame;
	struct vg_reply reply;
	int error = vg_begin(conn, op, sizeof(value), VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	memcpy(frame.payload, &value, sizeof(value));
	if (!wait)
		return vg_post(conn, &frame);
	error = vg_call(conn, &frame, &reply);
	if (error)
		return error;
	if (status)
		*status = reply.status;
	if (result)
		memcpy(result, reply.data, reply.length < 8 ? reply.length : 8);
	vg_reply_done(conn, &reply);
	return 0;
}

static int echo_once(size_t length, unsigned seed)
{
	struct vg_frame frame;
	struct vg_reply reply;
	int error = vg_begin(conn, ECHO_ECHO, length, VG_BULK_NONE, 0, &frame);

	if (error)
		return error;
	for (size_t i = 0; i < length; i++)
		((uint8_t *)frame.payload)[i] = echo_pattern(seed, i);
	error = vg_call(conn, &frame, &reply);
	if (error)
		return error;
	error = reply.length == length ? 0 : -EBADMSG;
	for (size_t i = 0; i < length && !error; i++)
		error = ((const uint8_t *)reply.data)[i] == echo_pattern(seed, i) ? 0 : -EBADMSG;
	vg_reply_done(conn, &reply);
	return error;
}

enum { WORDS = 24 };

/* A call of words; a reply of another size than was asked for says its length and leaves the words alone. */
static int words_once(size_t sent, size_t room, uint64_t seed)
{
	uint64_t request[WORDS], answer[WORDS];
	struct vg_words reply = { .at = answer, .room = room * 8, .status = -1 };
	int error;

	for (size_t i = 0; i < WORDS; i++) {
		request[i] = seed * WORDS + i;
		answer[i] = ~seed;
	}
	error = vg_exchange(conn, ECHO_ECHO, request, sent * 8, &reply);
	if (!error && (reply.status || reply.length != sent * 8))
		error = -EBADMSG;
	for (size_t i = 0; i < WORDS && !error; i++)
		error = answer[i] == (sent == room && i < room ? request[i] : ~seed) ? 0 : -EBADMSG;
	return error;
}

static int bulk_in(size_t length, uint64_t seed)
{
	struct vg_frame frame;
	struct vg_reply reply;
	int error = vg_begin(conn, ECHO_BULK_IN, sizeof(seed), VG_BULK_TO_WORKER, length, &frame);

	if (error)
		return error;
	memcpy(frame.payload, &seed, sizeof(seed));
	for (size_t i = 0; i < length; i++)
		((uint8_t *)frame.bulk)[i] = echo_pattern(seed, i);
	error = vg_call(conn, &frame, &reply);
	if (error)
		return error;
	error = reply.status ? -EBADMSG : 0;
	vg_reply_done(conn, &reply);
	return error;
}

static int bulk_out(size_t length, uint64_t seed)
{
	struct vg_frame frame;
	struct vg_reply reply;
	int error = vg_begin(conn, ECHO_BULK_OUT, sizeof(seed), VG_BULK_TO_GUEST, length, &frame);

	if (error)
		return error;
	memcpy(frame.payload, &seed, sizeof(seed));
	error = vg_call(conn, &frame, &reply);
	if (error)
		return error;
	error = reply.bulk_length == length ? 0 : -EBADMSG;
	for (size_t i = 0; i < length && !error; i++)
		error = ((const uint8_t *)reply.bulk)[i] == echo_pattern(seed, i) ? 0 : -EBADMSG;
	vg_reply_done(conn, &reply);
	return error;
}

/* ---- steps ---- */

static int step_open(void)
{
	return vg_conn_open(echo_interface(1), "1.0.0", &conn);
}

static int step_open2(void)
{
	return vg_conn_open(echo_interface(2), "2.0.0", &conn);
}

/* What only one side has, or has otherwise, is not sent, whichever way: the worker would take it for a violation. */
static int step_refused(void)
{
	uint64_t word = 1;
	struct vg_words reply = { .at = &word, .room = sizeof(word) };
	struct vg_frame frame;
	int error = vg_exchange(conn, ECHO_BULK_IN, &word, sizeof(word), &reply);

	if (error == -EOPNOTSUPP)
		error = vg_begin(conn, ECHO_BULK_IN, sizeof(word), VG_BULK_TO_WORKER, 64, &frame);
	if (error == -EOPNOTSUPP)
		error = vg_exchange(conn, conn->interface->hash[0] == 16 ? ECHO_ACCOUNT : ECHO_NEW, &word, sizeof(word), &reply);
	return error == -EOPNOTSUPP ? 0 : error ? error : -EBADMSG;
}

static int step_close(void)
{
	vg_conn_close(conn);
	conn = NULL;
	return 0;
}

static int step_echo(void)
{
	static const size_t lengths[] = { 0, 1, 8, 31, 32, 33, 255, 256, 257, 4096, VG_PAYLOAD_RING_MAX };
	int error = 0;

	for (unsigned round = 0; round < 40 && !error; round++)
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && !error; i++)
			error = echo_once(lengths[i], round * 100 + i);
	return error;
}

/* Often enough for both rings to begin anew. */
static int step_words(void)
{
	int error = 0;

	for (unsigned i = 0; i < 2500 && !error; i++)
		error = words_once(i % (WORDS + 1), i % 5 ? i % (WORDS + 1) : i % WORDS, i);
	return error;
}

static int step_order(void)
{
	static uint64_t sent;
	uint64_t seen = 0;
	int error = 0;

	for (unsigned i = 0; i < 20000 && !error; i++)
		error = send_number(ECHO_COUNT, ++sent, false, NULL, NULL);
	if (!error)
		error = send_number(ECHO_QUERY, 0, true, NULL, &seen);
	return error ? error : seen == sent ? 0 : -EBADMSG;
}

static int step_bulk(void)
{
	size_t most = vg_conn_bulk_max(conn);
	int error = 0;

	for (unsigned i = 0; i < 12 && !error; i++) {
		error = bulk_in(most - i * 777, i);
		if (!error)
			error = bulk_out(most - i * 999, i + 50);
		if (!error)
			error = bulk_in(i + 1, i);
	}
	return error;
}

static void *hold_thread(void *result)
{
	int status = 0;

	*(int *)result = send_number(ECHO_HOLD, 0, true, &status, NULL);
	if (status != 7 && !*(int *)result)
		*(int *)result = -EBADMSG;
	return NULL;
}

static void *hold_words_thread(void *result)
{
	uint64_t zero = 0;
	struct vg_words reply = { 0 };

	*(int *)result = vg_exchange(conn, ECHO_HOLD, &zero, sizeof(zero), &reply);
	if (reply.status != 7 && !*(int *)result)
		*(int *)result = -EBADMSG;
	return NULL;
}

/* Until the thread's call has come, there is nothing to release. */
static int release_held(void)
{
	int released = 0, error = 0;

	while (!released && !error) {
		usleep(1000);
		error = send_number(ECHO_RELEASE, 0, true, &released, NULL);
	}
	return error;
}

/* The held call is answered after a later one; the thread that waits for it holds nobody up. */
static int hold_in(void *(*thread_main)(void *))
{
	pthread_t thread;
	int result = 0, error = pthread_create(&thread, NULL, thread_main, &result);

	for (unsigned i = 0; i < 50 && !error; i++)
		error = i % 2 ? echo_once(100, i) : words_once(3, 3, i);
	if (!error)
		error = release_held();
	pthread_join(thread, NULL);
	return error ? error : result;
}

static int step_hold(void)
{
	int error = hold_in(hold_thread);

	return error ? error : hold_in(hold_words_thread);
}

static void *busy_thread(void *argument)
{
	int *result = argument;

	for (unsigned i = 0; i < 150 && !*result; i++) {
		*result = echo_once(i * 100 % 9000, i);
		for (unsigned j = 0; j < 10 && !*result; j++)
			*result = words_once(j, j, i * 10 + j);
		if (!*result && i % 8 == 0)
			*result = bulk_in(5000 + i, i);
		if (!*result && i % 8 == 4)
			*result = bulk_out(5000 + i, i);
		if (!*result)
			*result = send_number(ECHO_NULL, 0, false, NULL, NULL);
	}
	return NULL;
}

static void *few_thread(void *argument)
{
	int *result = argument;

	for (unsigned i = 0; i < 12 && !*result; i++) {
		*result = echo_once(i * 1000, i);
		if (!*result)
			*result = i % 2 ? bulk_in(70000 + i, i) : bulk_out(70000 + i, i);
		if (!*result)
			*result = words_once(i, i, i);
	}
	return NULL;
}

static int run_threads(void *(*thread_main)(void *))
{
	enum { COUNT = 8 };
	pthread_t thread[COUNT];
	int result[COUNT] = { 0 }, error = 0;

	for (int i = 0; i < COUNT; i++)
		pthread_create(&thread[i], NULL, thread_main, &result[i]);
	for (int i = 0; i < COUNT; i++) {
		pthread_join(thread[i], NULL);
		error = error ? error : result[i];
	}
	return error;
}

static int step_threads(void)
{
	return run_threads(busy_thread);
}

/* As much at once, and fewer: where each call crosses a network. */
static int step_few(void)
{
	int error = 0;

	for (unsigned i = 0; i < 20 && !error; i++)
		error = echo_once(i * 800, i);
	return error ? error : run_threads(few_thread);
}

static int send_ahead(size_t length, uint64_t seed, struct vg_reply *reply)
{
	struct vg_frame frame;
	int error = (seed ? vg_begin_ahead : vg_begin)(conn, ECHO_BULK_OUT, sizeof(seed), VG_BULK_TO_GUEST, length, &frame);

	if (error)
		return error;
	memcpy(frame.payload, &seed, sizeof(seed));
	return vg_call_send(conn, &frame, reply);
}

static int await_ahead(size_t length, uint64_t seed, struct vg_reply *reply)
{
	int error = vg_call_wait(conn, reply);

	if (error)
		return error;
	error = reply->bulk_length == length ? 0 : -EBADMSG;
	for (size_t i = 0; i < length && !error; i++)
		error = ((const uint8_t *)reply->bulk)[i] == echo_pattern(seed, i) ? 0 : -EBADMSG;
	vg_reply_done(conn, reply);
	return error;
}

static void *bulk_in_thread(void *result)
{
	*(int *)result = bulk_in(vg_conn_piece(conn), 1);
	return NULL;
}

/*
 * As many calls on their way as there is room for: that there is no more is said, not waited for, and neither is another
 * thread that waits for the room which these calls take.
 */
static int fill_ahead(size_t length, bool beside)
{
	struct vg_reply reply[VG_SLOTS + 1];
	unsigned sent = 0, more;
	int error = 0, failed = 0, last;
	pthread_t thread;

	for (last = 0; !last && sent <= VG_SLOTS; sent += !last)
		last = send_ahead(length, sent, &reply[sent]);
	if (beside) {
		pthread_create(&thread, NULL, bulk_in_thread, &error);
		usleep(20000);
		last = send_ahead(length, sent, &reply[sent]);
	}
	if (last != -EAGAIN)
		return last ? last : -EBADMSG;
	for (more = 0; more < sent; more++) {
		int got = await_ahead(length, more, &reply[more]);

		failed = failed ? failed : got;
	}
	if (beside)
		pthread_join(thread, NULL);
	return failed ? failed : error;
}

static void *ahead_thread(void *result)
{
	for (unsigned i = 0; i < 12 && !*(int *)result; i++)
		*(int *)result = fill_ahead(i % 4 ? 3000 + i : vg_conn_piece(conn), false);
	return NULL;
}

static int step_ahead(void)
{
	enum { COUNT = 3 };
	pthread_t thread[COUNT];
	int result[COUNT] = { 0 }, error = fill_ahead(vg_conn_piece(conn), true);

	for (int i = 0; i < COUNT; i++)
		pthread_create(&thread[i], NULL, ahead_thread, &result[i]);
	for (int i = 0; i < COUNT; i++) {
		pthread_join(thread[i], NULL);
		error = error ? error : result[i];
	}
	return error;
}

/* A worker that consumes nothing: what is posted uses the whole window before it waits. */
static int step_stalled(void)
{
	size_t most = vg_conn_bulk_max(conn);
	uint64_t at = 0;
	struct vg_frame frame;
	int error = send_number(ECHO_BLOCK, 0, false, NULL, NULL);

	for (unsigned i = 0; i < 8 && !error; i++) {
		error = vg_begin(conn, ECHO_STORE, sizeof(at), VG_BULK_TO_WORKER, most, &frame);
		if (error)
			break;
		memcpy(frame.payload, &at, sizeof(at));
		memset(frame.bulk, 0, most);
		error = vg_post(conn, &frame);
	}
	return error;
}

static int child_of_fork(void)
{
	struct vg_conn *parents = conn;
	struct vg_frame frame;

	if (vg_begin(conn, ECHO_NULL, 0, VG_BULK_NONE, 0, &frame) != -ENOTCONN || words_once(1, 1, 1) != -ENOTCONN)
		return 1;
	vg_conn_close(parents);
	if (step_open() || echo_once(64, 1))
		return 2;
	return step_close();
}

static int step_fork(void)
{
	int status, error = echo_once(64, 1);
	pid_t child = error ? -1 : fork();

	if (!child)
		_exit(child_of_fork());
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -ECHILD;
	if (status)
		return -EBADMSG;
	return echo_once(64, 2);
}

static int step_violate(void)
{
	int error = send_number(ECHO_REFUSE, 0, true, NULL, NULL);

	return error == -ECONNRESET && vg_conn_lost(conn) ? 0 : error ? error : -EBADMSG;
}

static int step_sizes(void)
{
	struct vg_frame frame;

	if (vg_begin(conn, 1, VG_PAYLOAD_RING_MAX + 1, VG_BULK_NONE, 0, &frame) != -EMSGSIZE)
		return -EBADMSG;
	if (vg_begin(conn, 1, 8, VG_BULK_TO_WORKER, vg_conn_bulk_max(conn) + 1, &frame) != -EMSGSIZE)
		return -EBADMSG;
	for (unsigned i = 0; i < 200; i++) {
		if (vg_begin(conn, 1, 8, VG_BULK_TO_WORKER, vg_conn_bulk_max(conn), &frame))
			return -EBADMSG;
		vg_cancel(conn, &frame);
	}
	return 0;
}

static int step_crash(void)
{
	int error = send_number(ECHO_CRASH, 0, true, NULL, NULL);

	return error == -ECONNRESET ? 0 : -EBADMSG;
}

static int step_shout(void)
{
	return send_number(ECHO_SHOUT, 0, true, NULL, NULL) == -ECONNRESET ? 0 : -EBADMSG;
}

static int step_forge(void)
{
	return send_number(ECHO_FORGE, 0, true, NULL, NULL) == -ECONNRESET ? 0 : -EBADMSG;
}

static int step_lost(void)
{
	int error = 0;

	for (unsigned i = 0; i < 5000 && !error; i++) {
		error = i % 2 ? echo_once(8, i) : words_once(1, 1, i);
		usleep(2000);
	}
	return error == -ECONNRESET ? 0 : error ? error : -EBADMSG;
}

static int step_block(void)
{
	return send_number(ECHO_BLOCK, 0, true, NULL, NULL);
}

static int step_blocked(void) /* until the worker dies */
{
	return step_block() == -ECONNRESET ? 0 : -EBADMSG;
}

static int step_churn(void)
{
	int error = 0;

	for (unsigned i = 0; i < 200 && !error; i++) {
		error = step_open();
		if (!error)
			error = echo_once(32, i);
		if (!error)
			error = step_close();
	}
	return error;
}

static int step_account(void)
{
	return send_number(ECHO_ACCOUNT, 123456, true, NULL, NULL);
}

static int step_hang(void)
{
	printf("hanging\n");
	fflush(stdout);
	pause();
	return 0;
}

/* Between the calls the worker's thread goes to sleep, and must be woken. */
static int step_sleepy(void)
{
	int error = 0;

	for (unsigned i = 0; i < 30 && !error; i++) {
		usleep(10000);
		error = send_number(ECHO_COUNT, i + 1, false, NULL, NULL);
		usleep(10000);
		if (!error)
			error = i % 2 ? echo_once(64, i) : words_once(2, 2, i);
	}
	return error;
}

static int step_large(void)
{
	int error = 0;

	for (unsigned i = 0; i < 100 && !error; i++)
		error = send_number(ECHO_LARGE, 0, true, NULL, NULL);
	return error;
}

static const struct {
	const char *name;
	int (*run)(void);
} steps[] = {
	{ "open", step_open },   { "close", step_close },     { "echo", step_echo },       { "order", step_order },
	{ "bulk", step_bulk },   { "hold", step_hold },       { "threads", step_threads }, { "fork", step_fork },
	{ "sizes", step_sizes }, { "violate", step_violate }, { "crash", step_crash },     { "lost", step_lost },
	{ "block", step_block }, { "blocked", step_blocked }, { "churn", step_churn },     { "account", step_account },
	{ "hang", step_hang },   { "large", step_large },     { "sleepy", step_sleepy },
	{ "words", step_words }, { "shout", step_shout },      { "forge", step_forge },     { "open2", step_open2 },
	{ "refused", step_refused }, { "few", step_few },
	{ "ahead", step_ahead },   { "stalled", step_stalled },
};

static int run_step(const char *name)
{
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (!strcmp(steps[i].name, name))
			return steps[i].run();
	return -ENOSYS;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int error = run_step(argv[i]);

		if (error) {
			printf("%s: %s: %s\n", argv[i], strerrorname_np(-error), vg_conn_error());
			return 1;
		}
		printf("ok %s\n", argv[i]);
		fflush(stdout);
	}
	return 0;
}
