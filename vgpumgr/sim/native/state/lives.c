/* SPDX-License-Identifier: Apache-2.0 */
/* Who a client is outside of its pid namespace, and whether it lives: asked by a lock, as its /proc may not be seen. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "layout.h"

uint64_t sim_process_start(pid_t pid)
{
	char path[32], text[1024];
	unsigned long long start;
	ssize_t n;
	char *p, state;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	p = strrchr(text, ')'); /* the command may hold blanks and parentheses (proc(5)) */
	if (!p || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			 &state, &start) != 2)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : start;
}

/* $VGPUMGR_SIM_PIDS is where a process in a pid namespace of its own is told its number outside. */
static pid_t ask_own_pid(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid = 0;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) || read(fd, &pid, sizeof(pid)) < 0)
		pid = 0;
	if (fd >= 0)
		close(fd);
	return pid ? pid : getpid();
}

static struct {
	pid_t inside, outside;
	uint64_t start_time;
} self;

pid_t sim_own_pid(void)
{
	const char *path;

	if (self.inside != getpid()) {
		path = getenv("VGPUMGR_SIM_PIDS");
		self.outside = path && *path ? ask_own_pid(path) : getpid();
		self.start_time = sim_process_start(getpid());
		self.inside = getpid();
	}
	return self.outside;
}

uint64_t sim_own_start(void)
{
	sim_own_pid();
	return self.start_time;
}

bool sim_client_lives(const struct sim *sim, int slot, pid_t pid, uint64_t start_time)
{
	struct flock byte = slot_byte(slot, F_WRLCK);

	if (pid == sim_own_pid()) /* a lock of its own tells a process nothing */
		return start_time == self.start_time;
	return fcntl(sim->fd, F_OFD_GETLK, &byte) || byte.l_type != F_UNLCK;
}
