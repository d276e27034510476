/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's process: started with what it needs and nothing else, watched, restarted with patience. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "keeper.h"

enum {
	STOP_MS = 3000,         /* from "stop" to SIGKILL */
	QUICK_DEATH_MS = 10000, /* a worker that lived longer starts a new count */
	BACKOFF_MS = 50,
	BACKOFF_MAX_MS = 5000,
	BREAKER = 8,            /* quick deaths in a row before we call it failed */
	BREAKER_MS = 30000,     /* and then try once in a while */
	FIRST_FD = 3,
};

/* ---- in the child ---- */

static _Noreturn void die(int control, const char *message)
{
	struct vg_note note = { .what = VG_WORKER_FAILED };

	snprintf(note.text, sizeof(note.text), "%s", message);
	send(control, &note, sizeof(note), MSG_NOSIGNAL);
	fprintf(stderr, "keeper: %s\n", message);
	_exit(1);
}

/* The last steps need /proc no more, nor any descriptor but those that are inherited. */
static void enter_sandbox(struct keeper *keeper, int sync, int control)
{
	char root[512], error[256];

	snprintf(root, sizeof(root), "%s/root", keeper->options.dir);
	if (keeper->pids >= 0) {
		snprintf(error, sizeof(error), "%s/pids.sock", keeper->options.dir);
		setenv("VGPUMGR_SIM_PIDS", error, 1);
	}
	sandbox_clean_environment();
	if (sandbox_enter(&keeper->options.sandbox, sync, root, error, sizeof(error)))
		die(control, error);
}

/*
 * The inherited descriptors, in this order, as FIRST_FD and following; everything above is closed. On their way they
 * stand directly above those places: no limit on open files is in the way.
 */
static void place_fds(const int *fds, int count)
{
	int high[8];

	for (int i = 0; i < count; i++)
		high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, FIRST_FD + count);
	for (int i = 0; i < count; i++)
		if (high[i] < 0)
			close(FIRST_FD + i);
		else
			dup2(high[i], FIRST_FD + i);
	close_range((unsigned)(FIRST_FD + count), ~0u, 0);
}

static void redirect(const struct keeper *keeper)
{
	char path[512];
	int null = open("/dev/null", O_RDWR), log;

	snprintf(path, sizeof(path), "%s/worker.log", keeper->options.dir);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0640);
	dup2(null, 0);
	dup2(log >= 0 ? log : null, 1);
	dup2(log >= 0 ? log : null, 2);
}

static _Noreturn void become_worker(struct keeper *keeper, int control, pid_t parent, int sync)
{
	const bool confined = keeper->options.sandbox.on;
	char channel[128], serial[512], error[256];
	char *argv[KEEPER_ARGS + 5];
	unsigned count = 0;
	sigset_t none;
	static const char *const filter_option[] = {
		[VG_FILTER_ENFORCE] = VG_OPTION_FILTER "enforce",
		[VG_FILTER_LOG] = VG_OPTION_FILTER "log",
		[VG_FILTER_OFF] = VG_OPTION_FILTER "off",
	};
	int fds[] = { keeper->memory_fd, keeper->doorbell, keeper->stats_fd, control };

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* in a pid namespace of its own it has no parent, and learns of its keeper's end from its socket */
	if (!confined && getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	redirect(keeper);
	if (confined)
		enter_sandbox(keeper, sync, control);
	place_fds(fds, 4);
	snprintf(channel, sizeof(channel), VG_OPTION_CHANNEL "memory:3,doorbell:4,stats:5,control:6,epoch:%u",
		 keeper->epoch);
	argv[count++] = (char *)keeper->options.worker;
	for (unsigned i = 0; i < keeper->options.worker_arg_count; i++)
		argv[count++] = keeper->options.worker_args[i];
	argv[count++] = channel;
	if (keeper->options.serial) {
		snprintf(serial, sizeof(serial), VG_OPTION_SERIAL "%s",
			 confined ? VG_SERIAL_OF_KEEPER : keeper->options.serial);
		argv[count++] = serial;
	}
	if (confined)
		argv[count++] = (char *)filter_option[keeper->options.sandbox.filter];
	argv[count] = NULL;
	if (confined && sandbox_filter(&keeper->options.sandbox, error, sizeof(error)))
		die(FIRST_FD + 3, error);
	execv(keeper->options.worker, argv);
	fprintf(stderr, "keeper: cannot run %s: %s\n", keeper->options.worker, strerror(errno));
	_exit(127);
}

/* ---- in the keeper ---- */

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
	int pair[2] = { -1, -1 }, sync = -1;
	pid_t parent = getpid();
	int error;

	keeper->epoch++;
	if (fresh_stats(keeper) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		snprintf(worker->message, sizeof(worker->message), "cannot start a worker: %s", strerror(errno));
		return;
	}
	worker->pid = sandbox_fork(&keeper->options.sandbox, &sync);
	if (!worker->pid)
		become_worker(keeper, pair[1], parent, sync);
	close(pair[1]);
	if (worker->pid < 0) {
		worker->pid = 0;
		snprintf(worker->message, sizeof(worker->message), "%s: %s",
			 keeper->options.sandbox.on ? "sandbox: cannot make namespaces" : "cannot start a worker",
			 strerror(errno));
		close(pair[0]);
		return;
	}
	vg_close_fd(&worker->control);
	worker->control = pair[0];
	worker->starts++;
	worker->started_ms = vg_now_ms();
	worker->kill_ms = 0;
	worker->unwanted = false;
	worker->state = WORKER_STARTING;
	worker->message[0] = '\0';
	error = sandbox_attend(&keeper->options.sandbox, sync, worker->pid);
	if (error) /* it will end by itself; what it then says is less */
		snprintf(worker->message, sizeof(worker->message), "sandbox: cannot map its user: %s", strerror(-error));
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
		kill(worker->pid, SIGTERM);
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

void keeper_reap(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	int status;

	if (!worker->pid || waitpid(worker->pid, &status, WNOHANG) != worker->pid)
		return;
	keeper_read_worker(keeper); /* its last words */
	worker->pid = 0;
	vg_close_fd(&worker->control);
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
			keeper_connect_serial(keeper);
		if (note.what == VG_WORKER_FAILED)
			vg_clean_text(worker->message, sizeof(worker->message), note.text, sizeof(note.text));
	}
}

/* QEMU listens there. Where it does not, or not yet, the worker asks again. */
void keeper_connect_serial(struct keeper *keeper)
{
	struct vg_note note = { .what = VG_KEEPER_SERIAL };
	VG_FD int fd = keeper->options.serial ? vg_connect_now(keeper->options.serial) : -ENOENT;

	if (fd >= 0)
		vg_send_fds(keeper->worker.control, &note, sizeof(note), &fd, 1);
}

void keeper_tick_worker(struct keeper *keeper)
{
	struct worker *worker = &keeper->worker;
	uint64_t now = vg_now_ms();

	if (worker->pid && worker->kill_ms && now >= worker->kill_ms) {
		kill(worker->pid, SIGKILL);
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
		return -1;
	return at <= now ? 0 : (int)(at - now) + 1;
}
