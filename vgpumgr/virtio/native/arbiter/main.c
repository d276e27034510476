/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-arbiter: divides one GPU's time among channels. One process for each GPU that has shares; it is started on demand,
 * keeps no state but accounts, has no rights once it serves, and ends some time after its last channel has gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "../keeper/sandbox.h"
#include "../transport/util.h"
#include "channels.h"

enum { RUNS_ALREADY = 3, LINGER_S = 30, BACKLOG = 64, FILES = 512, NICE = -10, LOG_BYTES = 1 << 20 };

static const char usage[] =
	"usage: vgpumgr-arbiter --socket PATH --policy fixed|burst [--user UID:GID] [--log PATH] [--linger SECONDS] [--detach]\n"
	"Divides a GPU's time among the channels whose keepers connect at PATH. Exit status 3: one runs there already.\n";

struct options {
	const char *socket, *log;
	enum arb_kind kind;
	bool has_user, has_policy, detach;
	unsigned uid, gid, linger_s;
};

static int parse_option(struct options *o, int option, const char *value)
{
	switch (option) {
	case 's':
		o->socket = value;
		return strlen(value) < sizeof(((struct sockaddr_un *)0)->sun_path) ? 0 : -EINVAL;
	case 'p':
		o->has_policy = true;
		o->kind = strcmp(value, "fixed") ? ARB_BURST : ARB_FIXED;
		return strcmp(value, "fixed") && strcmp(value, "burst") ? -EINVAL : 0;
	case 'u':
		o->has_user = true;
		return sscanf(value, "%u:%u", &o->uid, &o->gid) == 2 ? 0 : -EINVAL;
	case 'l':
		o->log = value;
		return 0;
	case 'g':
		return sscanf(value, "%u", &o->linger_s) == 1 ? 0 : -EINVAL;
	case 'D':
		o->detach = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "socket", 1, NULL, 's' }, { "policy", 1, NULL, 'p' }, { "user", 1, NULL, 'u' }, { "log", 1, NULL, 'l' },
		{ "linger", 1, NULL, 'g' }, { "detach", 0, NULL, 'D' }, { 0 },
	};
	int option;

	*o = (struct options){ .linger_s = LINGER_S };
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (parse_option(o, option, optarg)) {
			fprintf(stderr, "arbiter: cannot understand %s\n%s", optarg ? optarg : argv[optind - 1], usage);
			return -EINVAL;
		}
	}
	if (!o->socket || !o->has_policy || optind < argc) {
		fprintf(stderr, "arbiter: --socket and --policy are needed\n%s", usage);
		return -EINVAL;
	}
	return 0;
}

static int fail(const char *what, const char *path)
{
	fprintf(stderr, "arbiter: cannot %s %s: %s\n", what, path, strerror(errno));
	return 1;
}

/* The lock, and not the socket's name, says whether an arbiter runs here. It is held until the process ends. */
static int lock(const char *socket_path)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s.lock", socket_path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail("open", path);
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno == EWOULDBLOCK)
		return RUNS_ALREADY;
	return fail("lock", path);
}

/* Messages keep their boundaries; what another arbiter has left under the name goes. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask = umask(0177);
	int error;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	unlink(path);
	error = fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, BACKLOG);
	umask(mask);
	return error ? -1 : fd;
}

/* The starter waits until we listen. */
static int detach(int *ready)
{
	int ends[2];
	char byte;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child < 0)
		return -1;
	if (child) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 1 ? byte : 1);
	}
	close(ends[0]);
	setsid();
	*ready = ends[1];
	return 0;
}

static void say_ready(int ready, int status)
{
	char byte = (char)status;

	if (ready < 0)
		return;
	if (write(ready, &byte, 1) < 0)
		fprintf(stderr, "arbiter: the starter has gone\n");
	close(ready);
}

/* It names channels now and then, and is not made longer than LOG_BYTES. */
static void redirect(const char *log)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int file = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
	struct rlimit bytes = { LOG_BYTES, LOG_BYTES };

	dup2(null, 0);
	dup2(null, 1);
	dup2(file < 0 ? null : file, 2);
	close(null);
	vg_close_fd(&file);
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &bytes);
}

/* Sessions wait for its decisions, so that it runs before them where it may. */
static int renounce(const struct options *o)
{
	struct rlimit files = { FILES, FILES }, none = { 0, 0 };
	char error[256];

	setpriority(PRIO_PROCESS, 0, NICE);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	if (chdir("/"))
		return fail("enter", "/");
	if (!o->has_user || geteuid())
		return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? fail("give up", "its rights") : 0;
	if (!sandbox_renounce(o->uid, o->gid, error, sizeof(error)))
		return 0;
	fprintf(stderr, "arbiter: %s\n", error);
	return 1;
}

/* Serves until the last channel has been gone for a while and no start of a channel has asked for the arbiter. */
static void serve(struct channels *all, int listener, unsigned linger_s)
{
	static struct pollfd wait[CLIENTS * 2 + 1];
	uint64_t end = channels_clock() + linger_s * 1000000000ull;

	for (;;) {
		uint64_t until = channels_decide(all), now = channels_clock(), left;
		struct timespec limit;

		if (all->joined)
			end = now + linger_s * 1000000000ull;
		else if (now >= end)
			return;
		until = until < end ? until : end;
		left = until > now ? until - now : 0;
		limit = (struct timespec){ (time_t)(left / 1000000000), (long)(left % 1000000000) };
		channels_wait_for(all, wait);
		wait[CLIENTS * 2] = (struct pollfd){ listener, POLLIN, 0 };
		if (ppoll(wait, CLIENTS * 2 + 1, &limit, NULL) <= 0)
			continue;
		if (wait[CLIENTS * 2].revents) {
			channels_accept(all, listener);
			end = channels_clock() + linger_s * 1000000000ull;
		}
		channels_serve(all, wait);
	}
}

static int begin(const struct options *o, int *listener)
{
	int error = lock(o->socket);

	if (error)
		return error;
	*listener = listen_at(o->socket);
	return *listener < 0 ? fail("listen at", o->socket) : 0;
}

int main(int argc, char **argv)
{
	static struct channels all;
	struct options o;
	int ready = -1, listener = -1, error;

	if (parse(argc, argv, &o))
		return 2;
	if (o.detach && detach(&ready))
		return fail("start", "a process");
	signal(SIGPIPE, SIG_IGN);
	error = begin(&o, &listener);
	if (!error && o.detach)
		redirect(o.log);
	if (!error)
		error = renounce(&o);
	say_ready(ready, error);
	if (error)
		return error;
	channels_init(&all, o.kind);
	serve(&all, listener, o.linger_s);
	unlink(o.socket); /* where it still may */
	return 0;
}
