/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions' processes are started in advance. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "util.h"
#include "worker.h"
#include "worker_share.h"

enum {
	FIRST_FD = 3,
	RETRY_MS = 5000,         /* where no process can be started */
};

/* The descriptors as FIRST_FD and following; everything above is closed. */
static void place_fds(const int *fds, int count)
{
	int high[9];

	for (int i = 0; i < count; i++)
		high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, FIRST_FD + count);
	for (int i = 0; i < count; i++)
		if (high[i] < 0)
			close(FIRST_FD + i);
		else
			dup2(high[i], FIRST_FD + i);
	close_range((unsigned)(FIRST_FD + count), ~0u, 0);
}

/* It must not outlive the server, whatever ends that. */
static _Noreturn void become_session(struct vg_server *server, int socket, int exports, const int errors[2], pid_t parent)
{
	int fds[] = { server->memory_fd, server->stats_fd, socket, errors[0], server->watch_fd, server->limits_fd, -1, -1, exports };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	vg_share_fds(&fds[6], &fds[7]);
	dup2(errors[1], STDERR_FILENO);
	place_fds(fds, (int)(sizeof(fds) / sizeof(fds[0])));
	/* the file that runs here, even if another stands in its place meanwhile */
	execv("/proc/self/exe", server->argv);
	execv(server->argv[0], server->argv);
	_exit(127);
}

int vg_session_spawn(struct vg_server *server, struct vg_session *session)
{
	pid_t parent = getpid();
	int pair[2] = { -1, -1 }, exports[2] = { -1, -1 }, errors[2], error = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, exports))
		error = -errno;
	if (!error)
		error = vg_errors_open(errors);
	if (error) {
		for (unsigned i = 0; i < 2; i++) {
			vg_close_fd(&pair[i]);
			vg_close_fd(&exports[i]);
		}
		return error;
	}
	*session = (struct vg_session){ .socket = pair[0], .errors = errors[0], .exports = exports[0] };
	session->pid = fork();
	error = errno;
	if (!session->pid)
		become_session(server, pair[1], exports[1], errors, parent);
	close(pair[1]);
	close(exports[1]);
	close(errors[1]);
	if (session->pid > 0)
		return 0;
	session->pid = 0;
	vg_session_forget(session);
	return -error;
}

void vg_spare_keep(struct vg_server *server)
{
	if (server->spare.pid || vg_now_ms() < server->spare_ms)
		return;
	if (vg_session_spawn(server, &server->spare))
		server->spare_ms = vg_now_ms() + RETRY_MS;
}
