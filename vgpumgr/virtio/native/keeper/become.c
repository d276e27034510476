/* SPDX-License-Identifier: Apache-2.0 */
/* A child of the launcher becomes the worker: with what it needs and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "keeper.h"

enum { FIRST_FD = 3 };

static _Noreturn void die(int control, const char *message)
{
	struct vg_note note = { .what = VG_WORKER_FAILED };

	snprintf(note.text, sizeof(note.text), "%s", message);
	send(control, &note, sizeof(note), MSG_NOSIGNAL);
	fprintf(stderr, "keeper: %s\n", message);
	_exit(1);
}

/* While the host's files are to be seen, and before anything runs that a limit is for. */
static void enter_cgroups(const struct keeper_options *options, int control)
{
	char path[512], error[700];

	for (unsigned i = 0; i < options->cgroups; i++) {
		int fd, written;

		snprintf(path, sizeof(path), "%s/cgroup.procs", options->cgroup[i]);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		written = fd < 0 ? -1 : (int)write(fd, "0", 1);
		snprintf(error, sizeof(error), "cannot enter the cgroup %s: %s", options->cgroup[i], strerror(errno));
		if (written != 1)
			die(control, error);
		close(fd);
	}
}

/* The last steps need /proc no more, nor any descriptor but those that are inherited. */
static void enter_sandbox(struct keeper *keeper, int sync, int control)
{
	char root[512], error[256];

	snprintf(root, sizeof(root), "%s/root", keeper->options.dir);
	if (keeper->options.tells_pids) {
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
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(keeper->log.write, 1);
	dup2(keeper->log.write, 2);
}

_Noreturn void keeper_become_worker(struct keeper *keeper, const int *fds, uint32_t epoch, pid_t parent, int sync)
{
	const bool confined = keeper->options.sandbox.on, share = fds[LAUNCH_PAGE] >= 0;
	char channel[128], serial[512], error[256];
	char *argv[KEEPER_ARGS + 6];
	unsigned count = 0;
	const char *profile = sandbox_profile(keeper->options.worker);
	sigset_t none;
	static const char *const filter_option[] = {
		[VG_FILTER_ENFORCE] = VG_OPTION_FILTER "enforce",
		[VG_FILTER_LOG] = VG_OPTION_FILTER "log",
		[VG_FILTER_OFF] = VG_OPTION_FILTER "off",
	};

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* in a pid namespace of its own it has no parent, and learns of the end from its socket */
	if (!confined && getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	redirect(keeper);
	if (share) /* its sessions notice the end of a turn's work without delay; the filter would not let them ask for that */
		prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	enter_cgroups(&keeper->options, fds[LAUNCH_CONTROL]);
	profile = sandbox_has_profile(profile) ? profile : NULL;
	if (confined)
		enter_sandbox(keeper, sync, fds[LAUNCH_CONTROL]);
	if (profile)
		sandbox_enter_profile(profile);
	place_fds(fds, LAUNCH_FDS);
	snprintf(channel, sizeof(channel), VG_OPTION_CHANNEL "memory:3,doorbell:4,stats:5,control:6,epoch:%u", epoch);
	argv[count++] = (char *)keeper->options.worker;
	for (unsigned i = 0; i < keeper->options.worker_arg_count; i++)
		argv[count++] = keeper->options.worker_args[i];
	argv[count++] = channel;
	if (keeper->options.serial) {
		snprintf(serial, sizeof(serial), VG_OPTION_SERIAL "%s",
			 confined ? VG_SERIAL_OF_KEEPER : keeper->options.serial);
		argv[count++] = serial;
	}
	if (share)
		argv[count++] = (char *)VG_OPTION_SHARE "page:7,bell:8";
	if (confined)
		argv[count++] = (char *)filter_option[keeper->options.sandbox.filter];
	argv[count] = NULL;
	if (confined && sandbox_filter(&keeper->options.sandbox, error, sizeof(error)))
		die(FIRST_FD + 3, error);
	execv(keeper->options.worker, argv);
	fprintf(stderr, "keeper: cannot run %s: %s\n", keeper->options.worker, strerror(errno));
	_exit(127);
}
