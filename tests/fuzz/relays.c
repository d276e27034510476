/* SPDX-License-Identifier: Apache-2.0 */
#include "relays.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../vgpumgr/virtio/native/guestd/agent.h"
#include "window.h"

enum { RELAYS = 128, FIRST_PID = 1 << 23 };

struct fake {
	pid_t pid;               /* 0: there is none */
	int socket;              /* -1: it has ended */
	bool killed, has_job;
	uint64_t window;         /* as what it maps */
	uint32_t lane;
};

static struct fake relays[RELAYS];
static pid_t last_pid = FIRST_PID;
static int next_socket = -1;

static struct fake *by_pid(pid_t pid)
{
	for (unsigned i = 0; i < RELAYS; i++)
		if (relays[i].pid == pid)
			return &relays[i];
	return NULL;
}

/* ---- what the agent calls ---- */

int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int as);
int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int as)
{
	(void)actions;
	assert(as == RELAY_SOCKET);
	next_socket = fd;
	return 0;
}

int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attributes, char *const words[], char *const environment[]);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attributes, char *const words[], char *const environment[])
{
	struct fake *relay = by_pid(0);

	(void)path, (void)actions, (void)attributes, (void)words, (void)environment;
	if (!tape_has_ended() && roll(20) == 1)
		return EAGAIN;
	assert(relay); /* as many as there can be clients, and the spare */
	*relay = (struct fake){ .pid = ++last_pid, .socket = fcntl(next_socket, F_DUPFD_CLOEXEC, 0) };
	*pid = relay->pid;
	return 0;
}

int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number)
{
	struct fake *relay = by_pid(pid);

	assert(pid > FIRST_PID && number == SIGKILL && relay);
	relay->killed = true;
	return 0;
}

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	struct fake *relay = by_pid(pid);

	(void)status, (void)options;
	assert(pid > FIRST_PID && relay && relay->killed);
	vg_close_fd(&relay->socket);
	relay->pid = 0;
	return pid;
}

int relays_wait_for(pid_t pid, int *status)
{
	return __real_waitpid(pid, status, 0) != pid;
}

/* A few users. */
int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	int error = __real_getsockopt(fd, level, option, value, length);

	if (!error && option == SO_PEERCRED && !tape_has_ended())
		((struct ucred *)value)->uid = 1000 * (uid_t)roll(3);
	return error;
}

/* ---- what they do ---- */

static uint64_t file_of(int fd)
{
	struct stat st;

	assert(!fstat(fd, &st));
	return st.st_ino;
}

/* What it maps is there, and no other relay writes to the same lane. */
static void check_job(struct fake *relay, const struct relay_job *job, const int *fds)
{
	struct stat memory, mine;

	assert(!fstat(fds[0], &memory) && !fstat(fds[2], &mine) && fds[1] >= 0 && fds[3] >= 0);
	assert(job->lane >= 1 && job->lane <= job->layout.lane_count);
	assert(job->layout.lane_size % VG_PAGE == 0 && job->layout.submit_size % VG_PAGE == 0);
	assert(VG_LANES_OFFSET + (uint64_t)job->lane * job->layout.lane_size <= (uint64_t)memory.st_size);
	assert(VG_LANES_OFFSET + (uint64_t)job->layout.lane_size <= (uint64_t)mine.st_size);
	relay->window = file_of(fds[0]);
	relay->lane = job->lane;
	for (unsigned i = 0; i < RELAYS; i++)
		assert(&relays[i] == relay || !relays[i].pid || relays[i].socket < 0 || !relays[i].has_job ||
		       relays[i].window != relay->window || relays[i].lane != relay->lane);
	relay->has_job = true;
}

static void read_job(struct fake *relay)
{
	struct relay_job job;
	struct pollfd ready = { relay->socket, POLLIN, 0 };
	int fds[RELAY_FDS];

	if (relay->has_job || poll(&ready, 1, 0) <= 0)
		return;
	if (vg_recv_fds(relay->socket, &job, sizeof(job), fds, RELAY_FDS)) {
		vg_close_fd(&relay->socket);
		return;
	}
	check_job(relay, &job, fds);
	for (unsigned i = 0; i < RELAY_FDS; i++)
		vg_close_fd(&fds[i]);
}

static void move(struct fake *relay)
{
	char text[100];

	if (!relay->pid || relay->socket < 0)
		return;
	if (relay->killed || !roll(20)) {
		vg_close_fd(&relay->socket);
		return;
	}
	read_job(relay);
	if (relay->socket < 0 || roll(8))
		return;
	fill(text, sizeof(text));
	(void)!send(relay->socket, text, roll(sizeof(text)), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void relays_move(void)
{
	for (uint64_t i = roll(RELAYS), count = 0; count < RELAYS; count += 1 + roll(4))
		move(&relays[(i + count) % RELAYS]);
}

void relays_end(void)
{
	for (unsigned i = 0; i < RELAYS; i++) {
		if (relays[i].pid && relays[i].killed)
			vg_close_fd(&relays[i].socket);
		else if (relays[i].pid && relays[i].socket >= 0)
			read_job(&relays[i]);
	}
}
