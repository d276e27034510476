/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's process: watched, restarted with patience. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "keeper.h"
#include "launcher.h"

enum {
	STOP_MS = 3000,         /* from "stop" to SIGKILL */
	QUICK_DEATH_MS = 10000, /* a worker that lived longer starts a new count */
	BACKOFF_MS = 50,
	BACKOFF_MAX_MS = 5000,
	BREAKER = 8,            /* quick deaths in a row before we call it failed */
	BREAKER_MS = 30000,     /* and then try once in a while */
};

static int fresh_stats(struct keeper *keeper)
{
	void *stats;

	if (keeper->stats)
		munmap((void *)keeper->stats, VG_STATS_SIZE);
	keeper->stats = NULL;
	vg_close_fd(&keeper->stats_fd);
	keeper->stats_fd = memfd_create("vgpumgr-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (keeper->stats_fd < 0 || ftruncate(keeper->stats_fd, VG_STATS_SIZE) ||
	    fcntl(keeper->stats_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	stats = mmap(NULL, VG_STATS_SIZE, PROT_READ, MAP_SHARED, keeper->stats_fd, 0);
	if (stats == MAP_FAILED)
		return -errno;
	keeper->stats = stats;
	return 0;
}

static void spawn(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	int pair[2] = { -1, -1 };
	pid_t pid;

	keeper->epoch++;
	if (fresh_stats(keeper) || keeper_fresh_share(keeper) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		snprintf(worker->message, sizeof(worker->message), "cannot start a worker: %s", strerror(errno));
		return;
	}
	pid = launcher_spawn(keeper, pair[1]);
	close(pair[1]);
	if (pid <= 0) {
		snprintf(worker->message, sizeof(worker->message), "%s: %s",
			 keeper->options.sandbox.on ? "sandbox: cannot make namespaces" : "cannot start a worker",
			 strerror(-pid));
		close(pair[0]);
		return;
	}
	worker->pid = pid;
	vg_close_fd(&worker->control);
	worker->control = pair[0];
	worker->starts++;
	worker->started_ms = vg_now_ms();
	worker->kill_ms = 0;
	worker->unwanted = false;
	worker->state = WORKER_STARTING;
	worker->message[0] = '\0';
	keeper_repeat_limit(keeper);
}

void keeper_start_worker(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;

	if (worker->pid || keeper->stopping)
		return;
	spawn(keeper);
	if (worker->pid)
		return;
	worker->state = WORKER_WAITING;
	worker->retry_ms = vg_now_ms() + BACKOFF_MAX_MS;
}

void keeper_mark_lost(struct keeper *keeper)
{
	if (!keeper->memory)
		return;
	vg_store32(&((struct vg_header *)keeper->memory)->state, VG_STATE_LOST);
	for (uint32_t i = 0; i <= keeper->layout.lane_count; i++)
		vg_store64(&vg_lane_at(keeper->memory, &keeper->layout, i)->life, 0);
}

void keeper_stop_worker(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	struct vg_note note = { .what = VG_KEEPER_STOP };

	worker->failures = 0;
	if (!worker->pid) {
		if (!keeper->stopping)
			keeper_start_worker(keeper);
		return;
	}
	if (worker->kill_ms)
		return;
	worker->unwanted = true;
	worker->state = WORKER_STOPPING;
	worker->kill_ms = vg_now_ms() + STOP_MS;
	/* one that has not come to vg_worker_serve() yet reads no notes */
	if (send(worker->control, &note, sizeof(note), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		launcher_ask(keeper, LAUNCH_SIGNAL, SIGTERM);
}

static void describe_exit(struct worker *worker, int status)
{
	if (WIFSIGNALED(status))
		snprintf(worker->last_exit, sizeof(worker->last_exit), "killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(worker->last_exit, sizeof(worker->last_exit), "exited with status %d", WEXITSTATUS(status));
}

static void schedule_retry(struct worker *worker)
{
	uint64_t now = vg_now_ms(), wait = BACKOFF_MS;

	worker->failures = now - worker->started_ms < QUICK_DEATH_MS ? worker->failures + 1 : 1;
	for (unsigned i = 1; i < worker->failures && wait < BACKOFF_MAX_MS; i++)
		wait *= 2;
	worker->state = WORKER_WAITING;
	if (worker->failures >= BREAKER) {
		worker->state = WORKER_FAILED;
		wait = BREAKER_MS;
	}
	worker->retry_ms = now + (wait < BREAKER_MS ? wait : BREAKER_MS);
}

static void bury(struct keeper *keeper, int status)
{
	struct worker *worker = &keeper->worker;

	keeper_read_worker(keeper); /* its last words */
	worker->pid = 0;
	vg_close_fd(&worker->control);
	keeper_decide_limit(keeper);
	keeper_log_read(keeper);
	describe_exit(worker, status);
	if (worker->unwanted) {
		worker->state = WORKER_NONE;
		keeper_start_worker(keeper);
		return;
	}
	keeper_mark_lost(keeper);
	if (!worker->message[0])
		snprintf(worker->message, sizeof(worker->message), "the worker %s", worker->last_exit);
	schedule_retry(worker);
}

void keeper_read_worker(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	struct vg_note note;

	while (worker->control >= 0 && recv(worker->control, &note, sizeof(note), MSG_DONTWAIT) == sizeof(note)) {
		if (note.what == VG_WORKER_READY && worker->state == WORKER_STARTING)
			worker->state = WORKER_READY;
		if (note.what == VG_WORKER_SERIAL)
			launcher_ask(keeper, LAUNCH_CONNECT, 0);
		note.text[sizeof(note.text) - 1] = '\0';
		if (note.what == VG_WORKER_LIMIT)
			keeper_hear_limit(keeper, note.text);
		if (note.what == VG_WORKER_FAILED)
			vg_clean_text(worker->message, sizeof(worker->message), note.text, sizeof(note.text));
	}
}

static void hand_over_serial(struct keeper *keeper, int fd)
{
	struct vg_note note = { .what = VG_KEEPER_SERIAL };

	if (fd >= 0 && keeper->worker.control >= 0)
		vg_send_fds(keeper->worker.control, &note, sizeof(note), &fd, 1);
}

void keeper_read_launcher(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	struct launch message;
	int fd = -1;

	while (launcher_read(keeper, &message, &fd)) {
		if (message.what == LAUNCH_ENDED && worker->pid)
			bury(keeper, message.value);
		else if (message.what == LAUNCH_CONNECTED)
			hand_over_serial(keeper, fd);
		else if (message.what == LAUNCH_JOINED)
			keeper_adopt_arbiter(keeper, fd);
		else if (message.what == LAUNCH_UNMAPPED && !worker->message[0]) /* what the worker says then is less */
			snprintf(worker->message, sizeof(worker->message), "sandbox: cannot map its user: %s",
				 strerror(-message.value));
		vg_close_fd(&fd);
	}
	if (keeper->launcher >= 0)
		return;
	/* the worker ends with it, and no other can be started: this keeper is of no use */
	fprintf(stderr, "keeper: the launcher has ended\n");
	worker->pid = 0;
	worker->state = WORKER_NONE;
	keeper->stopping = true;
}

void keeper_tick_worker(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	uint64_t now = vg_now_ms();

	if (worker->pid && worker->kill_ms && now >= worker->kill_ms) {
		launcher_ask(keeper, LAUNCH_SIGNAL, SIGKILL);
		worker->kill_ms = now + STOP_MS;
	}
	if (!worker->pid && (worker->state == WORKER_WAITING || worker->state == WORKER_FAILED) &&
	    now >= worker->retry_ms)
		keeper_start_worker(keeper);
}

int keeper_next_tick(const struct keeper *keeper)
{
	const struct worker *worker = &keeper->worker;
	uint64_t now = vg_now_ms(), at;

	if (worker->pid && worker->kill_ms)
		at = worker->kill_ms;
	else if (!worker->pid && worker->state != WORKER_NONE)
		at = worker->retry_ms;
	else
		at = UINT64_MAX;
	if (keeper->options.arbiter && keeper->share.socket < 0 && keeper->share.retry_ms < at)
		at = keeper->share.retry_ms;
	if (at == UINT64_MAX)
		return -1;
	return at <= now ? 0 : (int)(at - now) + 1;
}
