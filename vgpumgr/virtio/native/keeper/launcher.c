/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "launcher.h"

enum {
	FINISH_MS = 5000,  /* it unlinks some names */
	END_MS = 3000,     /* a worker's, without a keeper; then it is killed */
	CGROUP_MS = 3000,  /* processes that have ended leave theirs */
	STEP_NS = 2000000,
};

/* ---- the launcher's process ---- */

struct launcher {
	struct keeper *keeper;   /* the options; nothing else of it is used */
	int socket, signals;
	pid_t worker;
};

static void tell(const struct launcher *launcher, enum launch_what what, int value, const int *fd)
{
	struct launch message = { .what = what, .value = value };

	vg_send_fds(launcher->socket, &message, sizeof(message), fd, fd ? 1 : 0);
}

static void start(struct launcher *launcher, const struct launch *request, int *fds)
{
	const struct sandbox *sandbox = &launcher->keeper->options.sandbox;
	int sync = -1, error;
	pid_t parent = getpid(), pid;

	if (launcher->worker)
		return tell(launcher, LAUNCH_STARTED, -EBUSY, NULL);
	pid = sandbox_fork(sandbox, &sync);
	if (!pid)
		keeper_become_worker(launcher->keeper, fds, request->epoch, parent, sync);
	tell(launcher, LAUNCH_STARTED, pid < 0 ? -errno : pid, NULL);
	if (pid < 0)
		return;
	launcher->worker = pid;
	error = sandbox_attend(sandbox, sync, pid);
	if (error)
		tell(launcher, LAUNCH_UNMAPPED, error, NULL);
}

static void reap(struct launcher *launcher)
{
	struct signalfd_siginfo info;
	int status;

	while (read(launcher->signals, &info, sizeof(info)) == sizeof(info))
		;
	if (!launcher->worker || waitpid(launcher->worker, &status, WNOHANG) != launcher->worker)
		return;
	launcher->worker = 0;
	tell(launcher, LAUNCH_ENDED, status, NULL);
}

/* QEMU listens there, or not yet. */
static void connect_serial(const struct launcher *launcher)
{
	const char *path = launcher->keeper->options.serial;
	VG_FD int fd = path ? vg_connect_now(path) : -ENOENT;

	tell(launcher, LAUNCH_CONNECTED, fd < 0 ? fd : 0, fd < 0 ? NULL : &fd);
}

/* Where another one listens by now. */
static void connect_arbiter(const struct launcher *launcher)
{
	const char *path = launcher->keeper->options.arbiter;
	VG_FD int fd = path ? vg_connect_messages(path) : -ENOENT;

	tell(launcher, LAUNCH_JOINED, fd < 0 ? fd : 0, fd < 0 ? NULL : &fd);
}

static void pause_a_little(void)
{
	struct timespec pause = { .tv_nsec = STEP_NS };

	nanosleep(&pause, NULL);
}

/* A process that does not end keeps its cgroup; then the next channel of this name finds it, or its end removes it. */
static void remove_cgroups(const struct keeper_options *options)
{
	uint64_t end = vg_now_ms() + CGROUP_MS;

	for (unsigned i = 0; i < options->cgroups; i++)
		while (rmdir(options->cgroup[i]) && errno == EBUSY && vg_now_ms() < end)
			pause_a_little();
}

/* Without a keeper: the worker ends by its parent's end, but what it was in would stay. */
static _Noreturn void end_alone(const struct launcher *launcher)
{
	uint64_t end = vg_now_ms() + END_MS;

	if (!launcher->worker || !launcher->keeper->options.cgroups)
		_exit(0);
	kill(launcher->worker, SIGTERM);
	while (!waitpid(launcher->worker, NULL, WNOHANG)) {
		if (vg_now_ms() > end)
			kill(launcher->worker, SIGKILL);
		if (vg_now_ms() > end + END_MS)
			break;
		pause_a_little();
	}
	remove_cgroups(&launcher->keeper->options);
	_exit(0);
}

static _Noreturn void finish(const struct launcher *launcher)
{
	static const char *const names[] = { "ivshmem.sock", "control.sock", "pids.sock", "keeper.pid" };
	char path[512];

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", launcher->keeper->options.dir, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/root", launcher->keeper->options.dir);
	rmdir(path);
	remove_cgroups(&launcher->keeper->options);
	_exit(0);
}

/* The keeper may be an enemy's: what it asks for is checked, and what it can ask for is harmless. */
static void obey(struct launcher *launcher, const struct launch *request, int *fds)
{
	if (request->what == LAUNCH_START)
		start(launcher, request, fds);
	else if (request->what == LAUNCH_CONNECT)
		connect_serial(launcher);
	else if (request->what == LAUNCH_ARBITER)
		connect_arbiter(launcher);
	else if (request->what == LAUNCH_FINISH)
		finish(launcher);
	else if (request->what == LAUNCH_SIGNAL && launcher->worker &&
		 (request->value == SIGTERM || request->value == SIGKILL))
		kill(launcher->worker, request->value);
}

/* Descriptors come without gaps; in `placed` each stands where it belongs, or -1. */
static void place(const struct launch *request, const int *came, int *placed)
{
	unsigned next = 0;

	for (unsigned i = 0; i < LAUNCH_FDS; i++)
		placed[i] = request->fds >> i & 1 ? came[next++] : -1;
}

static _Noreturn void serve(struct launcher *launcher)
{
	for (;;) {
		struct pollfd wait[2] = { { launcher->socket, POLLIN, 0 }, { launcher->signals, POLLIN, 0 } };
		int came[LAUNCH_FDS], placed[LAUNCH_FDS];
		struct launch request;

		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[1].revents)
			reap(launcher);
		if (!wait[0].revents)
			continue;
		if (vg_recv_fds(launcher->socket, &request, sizeof(request), came, LAUNCH_FDS))
			end_alone(launcher);
		place(&request, came, placed);
		obey(launcher, &request, placed);
		for (unsigned i = 0; i < LAUNCH_FDS; i++)
			vg_close_fd(&came[i]);
	}
}

/* Nothing of the channel stays here: not the memory, not the lock, which says that a keeper lives. */
static void let_go(struct keeper *keeper)
{
	int *const fds[] = { &keeper->memory_fd, &keeper->doorbell, &keeper->control, &keeper->ivshmem,
			     &keeper->pids,      &keeper->signals,  &keeper->pid_file,  &keeper->log.read,
			     &keeper->log.file, &keeper->share.socket };

	if (keeper->memory)
		munmap(keeper->memory, keeper->layout.size);
	keeper->memory = NULL;
	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		vg_close_fd(fds[i]);
}

static _Noreturn void become_launcher(struct keeper *keeper, int socket, int log)
{
	struct launcher launcher = { .keeper = keeper, .socket = socket };
	sigset_t set;

	prctl(PR_SET_NAME, "vgpumgr-launch");
	let_go(keeper);
	if (log >= 0) {
		dup2(log, 1);
		dup2(log, 2);
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM); /* of a group: the keeper ends us when the worker has ended */
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	launcher.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (launcher.signals < 0)
		_exit(1);
	serve(&launcher);
}

/* ---- the keeper's side ---- */

int launcher_start(struct keeper *keeper, int log)
{
	char error[256];
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	pid = fork();
	if (!pid) {
		close(pair[0]);
		become_launcher(keeper, pair[1], log);
	}
	close(pair[1]);
	vg_close_fd(&keeper->log.write); /* its workers' */
	keeper->launcher = pair[0];
	if (pid < 0)
		return -errno;
	if (!keeper->options.sandbox.on || geteuid())
		return 0;
	if (!sandbox_renounce(keeper->options.sandbox.uid + 1, keeper->options.sandbox.gid + 1, error, sizeof(error)))
		return 0;
	fprintf(stderr, "keeper: %s\n", error);
	return -EPERM;
}

int launcher_ask(const struct keeper *keeper, enum launch_what what, int value)
{
	struct launch request = { .what = what, .value = value };

	return vg_send_fds(keeper->launcher, &request, sizeof(request), NULL, 0);
}

pid_t launcher_spawn(struct keeper *keeper, int control)
{
	const int fds[LAUNCH_FDS] = { keeper->memory_fd, keeper->doorbell, keeper->stats_fd, control,
				      keeper->share.page_fd, keeper->share.bell };
	struct launch message = { .what = LAUNCH_START, .epoch = keeper->epoch };
	int given[LAUNCH_FDS], fd, error;
	unsigned count = 0;

	for (unsigned i = 0; i < LAUNCH_FDS; i++) {
		if (fds[i] < 0)
			continue;
		message.fds |= 1u << i;
		given[count++] = fds[i];
	}
	error = vg_send_fds(keeper->launcher, &message, sizeof(message), given, count);
	/* no worker runs, so that no other message is on its way, but for a connection that comes too late */
	while (!error) {
		error = vg_recv_fds(keeper->launcher, &message, sizeof(message), &fd, 1);
		vg_close_fd(&fd);
		if (!error && message.what == LAUNCH_STARTED)
			return message.value;
	}
	return error;
}

bool launcher_read(struct keeper *keeper, struct launch *message, int *fd)
{
	struct pollfd wait = { keeper->launcher, POLLIN, 0 };

	if (keeper->launcher < 0 || poll(&wait, 1, 0) != 1)
		return false;
	if (!vg_recv_fds(keeper->launcher, message, sizeof(*message), fd, 1))
		return true;
	vg_close_fd(&keeper->launcher);
	return false;
}

void launcher_finish(struct keeper *keeper)
{
	struct pollfd wait = { keeper->launcher, POLLIN, 0 };
	uint64_t end = vg_now_ms() + FINISH_MS;
	struct launch message;
	int fd;

	if (keeper->launcher < 0 || launcher_ask(keeper, LAUNCH_FINISH, 0))
		return;
	while (keeper->launcher >= 0 && vg_now_ms() < end) {
		poll(&wait, 1, (int)(end - vg_now_ms()));
		while (launcher_read(keeper, &message, &fd))
			vg_close_fd(&fd);
	}
}
