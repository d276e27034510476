/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-link: options, addresses, connections' preambles, and a process for each session. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../keeper/sandbox.h"
#include "../transport/util.h"
#include "link.h"

enum {
	ADDRESSES = 16,
	SESSIONS = 256, SESSIONS_OF_HOST = 64, /* the defaults */
	STRANGERS = 128, STRANGERS_OF_ADDRESS = 32, /* who have said nothing yet, or not who they are */
	PREAMBLE_MS = 3000,
	GRACE_S = 30, GRACE_MAX_S = 3600,
	LOUD = 30, LOUD_MS = 60000, /* connections in so much time that may be logged */
};

static const char usage[] =
	"usage: vgpumgr-link --listen ADDRESS:PORT... --identity DIR --peers DIR --broker PATH [--user UID:GID]\n"
	"                    [--grace SECONDS] [--sessions N] [--sessions-of-host N] [--pid-file FILE] [--detach]\n"
	"Serves this host's GPUs to other hosts, over TCP with TLS 1.3.\n";

struct address {
	char text[46];
};

struct stranger {
	int fd;
	uint64_t until_ms;
	struct address address;
	struct vg_link_preamble preamble;
	size_t filled;
};

struct child {
	pid_t pid;
	int socket;
	uint8_t id[VG_LINK_ID];
	struct address address;
	char host[65];           /* "": it has not said who it is */
};

struct listener {
	const char *listen[ADDRESSES], *identity, *peers, *broker, *pid_file;
	unsigned addresses, sessions, sessions_of_host, grace_s;
	uid_t uid;
	gid_t gid;
	bool detach;
	int socket[ADDRESSES], signals, lock;
	struct stranger stranger[STRANGERS];
	struct child *child;
	unsigned recent;
	uint64_t recent_ms;
};

static struct listener listener = { .sessions = SESSIONS, .sessions_of_host = SESSIONS_OF_HOST, .grace_s = GRACE_S,
				    .uid = (uid_t)-1, .lock = -1 };

/* ---- options ---- */

static int read_number(const char *text, unsigned most, unsigned *number)
{
	char end;

	return sscanf(text, "%u%c", number, &end) == 1 && *number && *number <= most ? 0 : -EINVAL;
}

static int parse_option(int option, const char *value)
{
	switch (option) {
	case 'l':
		if (listener.addresses == ADDRESSES)
			return -EINVAL;
		listener.listen[listener.addresses++] = value;
		return 0;
	case 'i':
		listener.identity = value;
		return 0;
	case 'p':
		listener.peers = value;
		return 0;
	case 'b':
		listener.broker = value;
		return 0;
	case 'u':
		return sscanf(value, "%u:%u", &listener.uid, &listener.gid) == 2 && listener.uid && listener.gid ? 0 : -EINVAL;
	case 'g':
		return read_number(value, GRACE_MAX_S, &listener.grace_s);
	case 'n':
		return read_number(value, 4096, &listener.sessions);
	case 'm':
		return read_number(value, 4096, &listener.sessions_of_host);
	case 'f':
		listener.pid_file = value;
		return 0;
	case 'd':
		listener.detach = true;
		return 0;
	default:
		return -EINVAL;
	}
}

static int parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "listen", 1, NULL, 'l' }, { "identity", 1, NULL, 'i' }, { "peers", 1, NULL, 'p' },
		{ "broker", 1, NULL, 'b' }, { "user", 1, NULL, 'u' },     { "grace", 1, NULL, 'g' },
		{ "sessions", 1, NULL, 'n' }, { "sessions-of-host", 1, NULL, 'm' },
		{ "pid-file", 1, NULL, 'f' }, { "detach", 0, NULL, 'd' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (!parse_option(option, optarg))
			continue;
		fprintf(stderr, "link: cannot understand %s\n%s", optarg ? optarg : argv[optind - 1], usage);
		return -EINVAL;
	}
	if (optind < argc || !listener.addresses || !listener.identity || !listener.peers || !listener.broker) {
		fprintf(stderr, "link: --listen, --identity, --peers and --broker are needed\n%s", usage);
		return -EINVAL;
	}
	if (!geteuid() && listener.uid == (uid_t)-1) {
		fprintf(stderr, "link: root needs --user UID:GID for the processes that serve\n%s", usage);
		return -EINVAL;
	}
	return 0;
}

/* ---- sockets ---- */

/* "ADDRESS:PORT" or "[ADDRESS]:PORT", in numbers: a name could be another one tomorrow. */
static int listen_at(const char *text)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	char host[64], *port;
	int fd = -1, error, on = 1;

	snprintf(host, sizeof(host), "%s", text + (*text == '['));
	port = strrchr(host, ':');
	if (port)
		*port++ = '\0';
	if (port && *text == '[' && host[0] && host[strlen(host) - 1] == ']')
		host[strlen(host) - 1] = '\0';
	error = port ? getaddrinfo(host, port, &hints, &found) : EAI_NONAME;
	if (error) {
		fprintf(stderr, "link: cannot understand --listen %s: ADDRESS:PORT or [ADDRESS]:PORT, in numbers\n", text);
		return -EINVAL;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (found->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 128)) {
		error = -errno;
		fprintf(stderr, "link: cannot listen at %s: %s\n", text, strerror(errno));
		vg_close_fd(&fd);
	}
	freeaddrinfo(found);
	return fd < 0 ? error : fd;
}

static void set_options(int fd)
{
	int on = 1, idle_s = 10, unsent_ms = VG_LINK_DEAD_MS;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof(unsent_ms));
}

/* ---- a session's process ---- */

static int restrict_itself(void)
{
	struct rlimit none = { 0, 0 }, files = { 128, 128 };
	char error[256] = "";

	if (setrlimit(RLIMIT_CORE, &none) || setrlimit(RLIMIT_NOFILE, &files))
		return -errno;
	if (!geteuid() && sandbox_renounce(listener.uid, listener.gid, error, sizeof(error))) {
		fprintf(stderr, "link: %s\n", error);
		return -EPERM;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0))
		return -errno;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0;                /* they write reports */
#else
	int result = vg_lock_files();

	return result ? result : vg_filter_apply(VG_FILTER_LINK, VG_FILTER_ENFORCE);
#endif
}

static _Noreturn void become_session(int socket, const struct stranger *stranger, bool quiet)
{
	static struct vg_link_trust trust[LINK_HOSTS];
	struct link_start start = { .listener = socket, .connection = stranger->fd, .quiet = quiet,
				    .grace_ms = listener.grace_s * 1000, .trust = trust };
	char text[256] = "";

	prctl(PR_SET_NAME, "vgpumgr-link");
	prctl(PR_SET_TIMERSLACK, 1000UL); /* its waits for answers are short */
	for (unsigned i = 0; i < listener.addresses; i++)
		vg_close_fd(&listener.socket[i]);
	vg_close_fd(&listener.signals);
	for (unsigned i = 0; i < STRANGERS; i++)
		if (&listener.stranger[i] != stranger)
			vg_close_fd(&listener.stranger[i].fd);
	for (unsigned i = 0; i < listener.sessions; i++)
		vg_close_fd(&listener.child[i].socket);
	/* what this process will not be able to read */
	start.identity = vg_tls_identity(listener.identity, text, sizeof(text));
	if (start.identity && vg_tls_trust(listener.peers, trust, LINK_HOSTS, text, sizeof(text)) >= 0) {
		start.broker = vg_connect_now(listener.broker);
		if (!restrict_itself())
			link_serve(&start);
		snprintf(text, sizeof(text), "cannot give up its rights");
	}
	if (!quiet)
		fprintf(stderr, "link: %s\n", text);
	_exit(1);
}

/* ---- processes ---- */

static struct child *find_session(const uint8_t *id)
{
	for (unsigned i = 0; i < listener.sessions; i++)
		if (listener.child[i].pid && !memcmp(listener.child[i].id, id, VG_LINK_ID))
			return &listener.child[i];
	return NULL;
}

/* Of one address, who have not said who they are. */
static unsigned count_strangers(const struct address *address)
{
	unsigned count = 0;

	for (unsigned i = 0; i < STRANGERS; i++)
		count += listener.stranger[i].fd >= 0 && !strcmp(listener.stranger[i].address.text, address->text);
	for (unsigned i = 0; i < listener.sessions; i++)
		count += listener.child[i].pid && !listener.child[i].host[0] &&
			 !strcmp(listener.child[i].address.text, address->text);
	return count;
}

static bool is_quiet(void)
{
	uint64_t now = vg_now_ms();

	if (now - listener.recent_ms > LOUD_MS) {
		listener.recent_ms = now;
		listener.recent = 0;
	}
	return ++listener.recent > LOUD;
}

static void start_session(const struct stranger *stranger)
{
	bool quiet = is_quiet();
	struct child *child = NULL;
	int pair[2];
	pid_t pid;

	for (unsigned i = 0; i < listener.sessions && !child; i++)
		if (!listener.child[i].pid)
			child = &listener.child[i];
	if (!child || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return;
	pid = fork();
	if (!pid) {
		sigset_t none;

		close(pair[0]);
		vg_close_fd(&listener.lock); /* it says that the listener lives, and not that a session does */
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		become_session(pair[1], stranger, quiet);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return;
	}
	*child = (struct child){ .pid = pid, .socket = pair[0], .address = stranger->address };
	memcpy(child->id, stranger->preamble.id, sizeof(child->id));
}

static void hear_child(struct child *child)
{
	struct link_note note, answer = { .kind = LINK_WELCOME };
	unsigned count = 0;
	int fd;

	if (vg_recv_fds(child->socket, &note, sizeof(note), &fd, 1))
		return vg_close_fd(&child->socket); /* it ends: the reaping frees its place */
	vg_close_fd(&fd);
	if (note.kind != LINK_HOST || child->host[0] || !note.host[0])
		return;
	vg_clean_text(child->host, sizeof(child->host), note.host, sizeof(note.host));
	for (unsigned i = 0; i < listener.sessions; i++)
		count += listener.child[i].pid && !strcmp(listener.child[i].host, child->host);
	if (count > listener.sessions_of_host)
		answer.kind = LINK_FULL;
	vg_send_fds(child->socket, &answer, sizeof(answer), NULL, 0);
}

static void reap(void)
{
	struct signalfd_siginfo info;
	pid_t pid;

	while (read(listener.signals, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo != SIGCHLD)
			exit(0); /* its processes serve on, until their connections break */
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (unsigned i = 0; i < listener.sessions; i++)
			if (listener.child[i].pid == pid) {
				vg_close_fd(&listener.child[i].socket);
				listener.child[i].pid = 0;
			}
}

/* ---- connections ---- */

static void drop(struct stranger *stranger)
{
	vg_close_fd(&stranger->fd);
}

static void take_preamble(struct stranger *stranger)
{
	const struct vg_link_preamble *preamble = &stranger->preamble;
	struct link_note note = { .kind = LINK_CONNECTION };
	struct child *child;

	if (memcmp(preamble->magic, VG_LINK_MAGIC, sizeof(preamble->magic)) || preamble->version != VG_LINK_VERSION ||
	    preamble->zero)
		return;
	child = find_session(preamble->id);
	if (!child)
		start_session(stranger);
	else if (child->socket >= 0)
		vg_send_fds(child->socket, &note, sizeof(note), &stranger->fd, 1);
}

static void hear_stranger(struct stranger *stranger)
{
	ssize_t n = recv(stranger->fd, (uint8_t *)&stranger->preamble + stranger->filled,
			 sizeof(stranger->preamble) - stranger->filled, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		return drop(stranger);
	stranger->filled += (size_t)n;
	if (stranger->filled < sizeof(stranger->preamble))
		return;
	take_preamble(stranger);
	drop(stranger);
}

static void accept_from(int socket)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	int fd = accept4(socket, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct stranger *place = NULL;
	struct address address;

	if (fd < 0)
		return;
	if (getnameinfo((struct sockaddr *)&from, length, address.text, sizeof(address.text), NULL, 0, NI_NUMERICHOST))
		address.text[0] = '\0';
	for (unsigned i = 0; i < STRANGERS && !place; i++)
		if (listener.stranger[i].fd < 0)
			place = &listener.stranger[i];
	if (!place || count_strangers(&address) >= STRANGERS_OF_ADDRESS) {
		close(fd);
		return;
	}
	set_options(fd);
	*place = (struct stranger){ .fd = fd, .until_ms = vg_now_ms() + PREAMBLE_MS, .address = address };
}

/* ---- the loop ---- */

static _Noreturn void loop(void)
{
	unsigned all = 1 + listener.addresses + STRANGERS + listener.sessions;
	struct pollfd *wait = calloc(all, sizeof(*wait));

	for (;;) {
		struct pollfd *addresses = wait + 1, *strangers = addresses + listener.addresses;
		struct pollfd *children = strangers + STRANGERS;

		wait[0] = (struct pollfd){ listener.signals, POLLIN, 0 };
		for (unsigned i = 0; i < listener.addresses; i++)
			addresses[i] = (struct pollfd){ listener.socket[i], POLLIN, 0 };
		for (unsigned i = 0; i < STRANGERS; i++)
			strangers[i] = (struct pollfd){ listener.stranger[i].fd, POLLIN, 0 };
		for (unsigned i = 0; i < listener.sessions; i++)
			children[i] = (struct pollfd){ listener.child[i].pid ? listener.child[i].socket : -1, POLLIN, 0 };
		poll(wait, all, 1000);
		for (unsigned i = 0; i < listener.sessions; i++)
			if (children[i].revents)
				hear_child(&listener.child[i]);
		for (unsigned i = 0; i < STRANGERS; i++) {
			if (strangers[i].revents)
				hear_stranger(&listener.stranger[i]);
			else if (listener.stranger[i].fd >= 0 && vg_now_ms() > listener.stranger[i].until_ms)
				drop(&listener.stranger[i]);
		}
		for (unsigned i = 0; i < listener.addresses; i++)
			if (addresses[i].revents)
				accept_from(listener.socket[i]);
		if (wait[0].revents)
			reap();
	}
}

static int lock_pid_file(void)
{
	int fd;

	if (!listener.pid_file)
		return 0;
	fd = open(listener.pid_file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644); /* held until this process ends */
	listener.lock = fd;
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !ftruncate(fd, 0) && dprintf(fd, "%d\n", getpid()) > 0)
		return 0;
	fprintf(stderr, "link: cannot lock %s: %s\n", listener.pid_file, strerror(errno));
	return -EBUSY;
}

static int begin(void)
{
	char text[256];
	SSL_CTX *identity;
	sigset_t set;

	for (unsigned i = 0; i < listener.addresses; i++) {
		listener.socket[i] = listen_at(listener.listen[i]);
		if (listener.socket[i] < 0)
			return listener.socket[i];
	}
	identity = vg_tls_identity(listener.identity, text, sizeof(text));
	if (!identity) {
		fprintf(stderr, "link: %s\n", text);
		return -EINVAL;
	}
	SSL_CTX_free(identity); /* each process reads it anew */
	for (unsigned i = 0; i < STRANGERS; i++)
		listener.stranger[i].fd = -1;
	listener.child = calloc(listener.sessions, sizeof(*listener.child));
	for (unsigned i = 0; listener.child && i < listener.sessions; i++)
		listener.child[i].socket = -1;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	listener.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return listener.child && listener.signals >= 0 ? 0 : -ENOMEM;
}

/* The starter goes once all is set up: the number in the file is the one of who stays. */
static int detach(void)
{
	int null;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid)
		_exit(0);
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0);
	dup2(null, 1);
	return 0;
}

int main(int argc, char **argv)
{
	if (parse(argc, argv))
		return 2;
	if (begin())
		return 1;
	if (listener.detach && detach())
		return 1;
	if (lock_pid_file())
		return 1;
	loop();
}
