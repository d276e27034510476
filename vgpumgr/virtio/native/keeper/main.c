/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-keeper: options, sockets, the loop. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>

#include "launcher.h"

static const char usage[] =
	"usage: vgpumgr-keeper --dir DIR --worker PATH [--shm-size 64M] [--serial PATH] [--socket-owner UID:GID]\n"
	"                      [--socket-mode 0660] [--env NAME=VALUE]... [--detach]\n"
	"                      [--sandbox UID:GID [--filter enforce|log|off] [--read PATH]... [--write PATH]...\n"
	"                       [--device PATH]...] [--cgroup PATH]...\n"
	"                      [--compute PERCENT --compute-policy fixed|burst|best-effort [--priority low|normal|high]\n"
	"                       --arbiter PATH] [-- WORKER-ARGUMENT...]\n"
	"Keeps one VM's channel: memory and doorbell for QEMU at DIR/ivshmem.sock, requests at DIR/control.sock.\n";

/* ---- options ---- */

static int parse_size(const char *text, uint64_t *size)
{
	char *end;
	uint64_t number = strtoull(text, &end, 10);

	if (*end == 'M' || *end == 'm')
		number <<= 20, end++;
	else if (*end == 'G' || *end == 'g')
		number <<= 30, end++;
	*size = number;
	return *end || end == text ? -EINVAL : 0;
}

static int parse_option(struct keeper_options *options, int option, char *value)
{
	unsigned uid, gid;

	switch (option) {
	case 'd':
		options->dir = value;
		return 0;
	case 'w':
		options->worker = value;
		return 0;
	case 's':
		options->serial = value;
		return 0;
	case 'm':
		return parse_size(value, &options->shm_size);
	case 'o':
		if (sscanf(value, "%u:%u", &uid, &gid) != 2)
			return -EINVAL;
		options->owner = uid;
		options->group = gid;
		return 0;
	case 'p':
		return sscanf(value, "%o", &options->mode) == 1 && options->mode <= 0777 ? 0 : -EINVAL;
	case 'e':
		return strchr(value, '=') ? putenv(value) : -EINVAL;
	case 'S':
		if (sscanf(value, "%u:%u", &uid, &gid) != 2)
			return -EINVAL;
		options->sandbox.on = true;
		options->sandbox.uid = uid;
		options->sandbox.gid = gid;
		return 0;
	case 'f':
		if (vg_filter_mode(value) < 0)
			return -EINVAL;
		options->sandbox.filter = (enum vg_filter_mode)vg_filter_mode(value);
		return 0;
	case 'r':
		return sandbox_add(&options->sandbox, value, SANDBOX_READ);
	case 'W':
		return sandbox_add(&options->sandbox, value, SANDBOX_WRITE);
	case 'v':
		return sandbox_add(&options->sandbox, value, SANDBOX_DEVICE);
	case 'c':
		if (*value != '/' || options->cgroups == KEEPER_CGROUPS)
			return -EINVAL;
		options->cgroup[options->cgroups++] = value;
		return 0;
	case 'C':
		options->compute = keeper_read_percent(value);
		return options->compute ? 0 : -EINVAL;
	case 'P':
		options->policy = value;
		options->fixed = !strcmp(value, "fixed");
		return options->fixed || !strcmp(value, "burst") || !strcmp(value, "best-effort") ? 0 : -EINVAL;
	case 'T':
		if (keeper_read_priority(value) < 0)
			return -EINVAL;
		options->priority = (uint32_t)keeper_read_priority(value);
		return 0;
	case 'A':
		options->arbiter = value;
		return 0;
	case 'D':
		options->detach = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static int parse(int argc, char **argv, struct keeper_options *options)
{
	static const struct option known[] = {
		{ "dir", 1, NULL, 'd' },         { "worker", 1, NULL, 'w' },      { "serial", 1, NULL, 's' },
		{ "shm-size", 1, NULL, 'm' },    { "socket-owner", 1, NULL, 'o' }, { "socket-mode", 1, NULL, 'p' },
		{ "env", 1, NULL, 'e' },         { "detach", 0, NULL, 'D' },      { "sandbox", 1, NULL, 'S' },
		{ "filter", 1, NULL, 'f' },      { "read", 1, NULL, 'r' },        { "write", 1, NULL, 'W' },
		{ "device", 1, NULL, 'v' },      { "cgroup", 1, NULL, 'c' },      { "compute", 1, NULL, 'C' },
		{ "compute-policy", 1, NULL, 'P' }, { "arbiter", 1, NULL, 'A' },
		{ "priority", 1, NULL, 'T' },    { 0 },
	};
	struct vg_layout layout;
	int option;

	*options = (struct keeper_options){ .shm_size = 64 << 20, .owner = -1u, .group = -1u, .mode = 0600,
					     .priority = VG_SHARE_NORMAL };
	while ((option = getopt_long(argc, argv, "+", known, NULL)) != -1) {
		if (parse_option(options, option, optarg)) {
			fprintf(stderr, "keeper: cannot understand %s\n%s", optarg ? optarg : argv[optind - 1], usage);
			return -EINVAL;
		}
	}
	for (; optind < argc && options->worker_arg_count < KEEPER_ARGS; optind++)
		options->worker_args[options->worker_arg_count++] = argv[optind];
	if (!options->arbiter != !options->compute) {
		fprintf(stderr, "keeper: --compute and --arbiter belong together\n%s", usage);
		return -EINVAL;
	}
	if (!options->dir || !options->worker || optind < argc || vg_layout(options->shm_size, &layout)) {
		fprintf(stderr, "keeper: --dir and --worker are needed, sizes are powers of two from 1M to 1G\n%s", usage);
		return -EINVAL;
	}
	return 0;
}

/* ---- beginning and end ---- */

static int fail(const char *what, const char *path)
{
	int error = errno;

	fprintf(stderr, "keeper: %s %s: %s\n", what, path, strerror(error));
	return -error;
}

static char *path_in(const struct keeper *keeper, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", keeper->options.dir, name);
	return path;
}

/* Sockets and logs are made in it by name: nobody else may put something in their places. */
static int make_directory(const char *path)
{
	struct stat status;

	if (mkdir(path, 0711) && errno != EEXIST)
		return fail("mkdir", path);
	if (lstat(path, &status))
		return fail("stat", path);
	errno = S_ISDIR(status.st_mode) ? EPERM : ENOTDIR;
	if (!S_ISDIR(status.st_mode) || (status.st_uid && status.st_uid != geteuid()) || status.st_mode & 022)
		return fail("another user's, or others may write there: directory", path);
	return 0;
}

/* The lock, and not the number in the file, says whether a keeper runs here. */
static int lock_pid_file(struct keeper *keeper)
{
	char path[512];

	path_in(keeper, "keeper.pid", path, sizeof(path));
	keeper->pid_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (keeper->pid_file < 0)
		return fail("open", path);
	if (flock(keeper->pid_file, LOCK_EX | LOCK_NB))
		return fail("another keeper runs here: lock", path);
	if (ftruncate(keeper->pid_file, 0) || dprintf(keeper->pid_file, "%d\n", getpid()) < 0)
		return fail("write", path);
	return 0;
}

static int listen_at(struct keeper *keeper, const char *name, unsigned mode, int *out)
{
	char path[512];
	int fd = vg_listen(path_in(keeper, name, path, sizeof(path)), mode);

	if (fd < 0) {
		errno = -fd;
		return fail("listen at", path);
	}
	*out = fd;
	return 0;
}

static int open_sockets(struct keeper *keeper)
{
	const struct keeper_options *options = &keeper->options;
	char path[512];
	int error = listen_at(keeper, "control.sock", 0600, &keeper->control);

	if (!error)
		error = listen_at(keeper, "ivshmem.sock", options->mode, &keeper->ivshmem);
	if (!error && options->sandbox.on && getenv("VGPUMGR_SIM")) {
		keeper->options.tells_pids = true;
		error = listen_at(keeper, "pids.sock", 0600, &keeper->pids);
		path_in(keeper, "pids.sock", path, sizeof(path));
		if (!error && lchown(path, options->sandbox.uid, options->sandbox.gid))
			error = fail("chown", path);
		if (!error)
			error = sandbox_add(&keeper->options.sandbox, strdup(path), SANDBOX_READ);
	}
	if (error || (options->owner == (uid_t)-1 && options->group == (gid_t)-1))
		return error;
	path_in(keeper, "ivshmem.sock", path, sizeof(path));
	return lchown(path, options->owner, options->group) ? fail("chown", path) : 0;
}

static int open_signals(struct keeper *keeper)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	keeper->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return keeper->signals < 0 ? fail("signalfd", "") : 0;
}

static int begin(struct keeper *keeper)
{
	char root[512], path[512];
	int error;

	keeper->pids = keeper->memory_fd = keeper->doorbell = keeper->stats_fd = keeper->qemu = keeper->worker.control = -1;
	keeper->launcher = keeper->log.file = keeper->log.read = keeper->log.write = -1;
	keeper->share = (struct keeper_share){ .socket = -1, .page_fd = -1, .bell = -1, .arbiters_bell = -1 };
	for (unsigned i = 0; i < KEEPER_CLIENTS; i++)
		keeper->client[i].fd = -1;
	keeper->started_s = (uint64_t)time(NULL);
	/* epochs of a later keeper for the same VM must differ: guests may hold old ones */
	keeper->epoch = (uint32_t)keeper->started_s << 8;
	keeper->next_size = keeper->options.shm_size;
	error = make_directory(keeper->options.dir);
	if (!error && keeper->options.sandbox.on)
		error = make_directory(path_in(keeper, "root", root, sizeof(root)));
	if (!error)
		error = lock_pid_file(keeper);
	if (!error && keeper_log_open(keeper, path_in(keeper, "worker.log", path, sizeof(path))))
		error = fail("make the log's pipe in", keeper->options.dir);
	if (!error)
		error = open_signals(keeper);
	if (!error)
		error = open_sockets(keeper);
	if (!error)
		error = keeper_join_arbiter(keeper);
	if (!error && keeper_make_memory(keeper))
		error = fail("make memory in", keeper->options.dir);
	return error;
}

static void finish(struct keeper *keeper)
{
	keeper_mark_lost(keeper);
	launcher_finish(keeper);
	keeper_log_end(keeper);
}

/* ---- the loop ---- */

static void take_signals(struct keeper *keeper)
{
	struct signalfd_siginfo info;

	while (read(keeper->signals, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			keeper->stopping = true;
}

static void loop(struct keeper *keeper)
{
	enum { SIGNALS, QEMU, IVSHMEM, CONTROL, WORKER, PIDS, LAUNCHER, LOG, ARBITER, CLIENTS, ALL = CLIENTS + KEEPER_CLIENTS };

	while (!keeper->stopping || keeper->worker.pid) {
		const int log_wait = keeper_log_wait(keeper), tick = keeper_next_tick(keeper);
		struct pollfd wait[ALL] = {
			[SIGNALS] = { keeper->signals, POLLIN, 0 },        [QEMU] = { keeper->qemu, POLLIN, 0 },
			[IVSHMEM] = { keeper->ivshmem, POLLIN, 0 },        [CONTROL] = { keeper->control, POLLIN, 0 },
			[WORKER] = { keeper->worker.control, POLLIN, 0 },  [PIDS] = { keeper->pids, POLLIN, 0 },
			[LAUNCHER] = { keeper->launcher, POLLIN, 0 },      [ARBITER] = { keeper->share.socket, POLLIN, 0 },
			[LOG] = { log_wait < 0 ? keeper->log.read : -1, POLLIN, 0 },
		};

		for (unsigned i = 0; i < KEEPER_CLIENTS; i++)
			wait[CLIENTS + i] = (struct pollfd){ keeper->client[i].fd, POLLIN, 0 };
		poll(wait, ALL, log_wait < 0 || (tick >= 0 && tick < log_wait) ? tick : log_wait);
		if (wait[LOG].revents || !log_wait)
			keeper_log_read(keeper);
		if (wait[QEMU].revents)
			keeper_watch_qemu(keeper);
		if (wait[WORKER].revents)
			keeper_read_worker(keeper);
		if (wait[WORKER].revents & POLLHUP) /* it is dying; the launcher says so, too */
			vg_close_fd(&keeper->worker.control);
		if (wait[LAUNCHER].revents)
			keeper_read_launcher(keeper);
		if (wait[ARBITER].revents && wait[ARBITER].fd == keeper->share.socket)
			keeper_watch_arbiter(keeper);
		if (wait[SIGNALS].revents)
			take_signals(keeper);
		for (unsigned i = 0; i < KEEPER_CLIENTS; i++)
			if (wait[CLIENTS + i].revents)
				keeper_serve_client(keeper, &keeper->client[i]);
		if (wait[IVSHMEM].revents)
			keeper_accept_qemu(keeper);
		if (wait[PIDS].revents)
			keeper_answer_pid(keeper);
		if (wait[CONTROL].revents)
			keeper_accept_client(keeper);
		if (keeper->stopping)
			keeper_stop_worker(keeper);
		keeper_tick_worker(keeper);
		keeper_tick_arbiter(keeper);
	}
}

/* The starter waits until all is set up, and learns from our exit status if it is not. */
static int detach(int *ready)
{
	int pipe_fds[2];
	char byte;
	pid_t child;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	child = fork();
	if (child < 0)
		return -errno;
	if (child) {
		close(pipe_fds[1]);
		_exit(read(pipe_fds[0], &byte, 1) == 1 ? 0 : 1);
	}
	close(pipe_fds[0]);
	setsid();
	*ready = pipe_fds[1];
	return 0;
}

static void leave_terminal(int log, int ready)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, 0);
	dup2(log, 1);
	dup2(log, 2);
	close(null);
	close(log);
	if (write(ready, "", 1) < 0)
		fprintf(stderr, "keeper: the starter has gone\n");
	close(ready);
}

int main(int argc, char **argv)
{
	static struct keeper keeper;
	char path[512];
	int ready = -1, log = -1;

	if (parse(argc, argv, &keeper.options))
		return 2;
	if (keeper.options.detach && detach(&ready))
		return 1;
	if (begin(&keeper))
		return 1;
	if (ready >= 0)
		log = keeper_log_own(path_in(&keeper, "keeper.log", path, sizeof(path)));
	if (launcher_start(&keeper, log))
		return fail("start the launcher in", keeper.options.dir) ? 1 : 0;
	keeper_start_worker(&keeper);
	if (ready >= 0)
		leave_terminal(log, ready);
	loop(&keeper);
	finish(&keeper);
	return 0;
}
