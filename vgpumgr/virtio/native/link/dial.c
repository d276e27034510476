/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-dial: the network of a channel whose GPU is in another host. Its sessions connect to DIR/dial.sock and get
 * connected sockets; what goes through these it does not see. docs/link-protocol.md, "The dialer".
 */
#include "dial_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "../keeper/sandbox.h"
#include "../transport/util.h"
#include "json.h"

enum { TICK_MS = 500, LOCK_FIRST_MS = 30000, LINE = 320 };

static const char usage[] =
	"usage: vgpumgr-dial --dir DIR [--keeper-lock FILE] [--owner UID:GID] [--detach]\n"
	"Connects the sessions of a channel to the host of its GPU: asks at DIR/dial.sock, addresses in DIR/address.\n";

static struct {
	const char *lock;
	uid_t uid;
	gid_t gid;
	bool detach, owned;
} options;

/* ---- sessions: a thread each ---- */

static int connect_session(struct dial_session *session)
{
	struct dial_address address[DIAL_ADDRESSES];
	char text[DIAL_TEXT] = "", where[DIAL_TEXT] = "";
	int count, fd = -1;

	dial_note(session, DIAL_DIALING, session->text);
	count = dial_find(session, address, text, sizeof(text));
	for (int i = 0; i < count && fd < 0; i++)
		fd = dial_connect(session, &address[i], where, sizeof(where), text, sizeof(text));
	if (fd < 0) {
		dial_note(session, DIAL_DOWN, text);
		return dial_say(session, "error", *text ? text : "no address is known");
	}
	pthread_mutex_lock(&dialer.lock);
	snprintf(session->where, sizeof(session->where), "%s", where);
	session->connections++;
	pthread_mutex_unlock(&dialer.lock);
	dial_note(session, DIAL_UP, "");
	count = vg_send_fds(session->fd, "ok\n", 3, &fd, 1);
	close(fd);
	return count;
}

static void report(const struct dial_session *asker)
{
	static const char *const states[] = { [DIAL_DIALING] = "dialing", [DIAL_WAITING] = "waiting", [DIAL_UP] = "up",
					      [DIAL_DOWN] = "down" };
	char line[1024], name[80], text[2 * DIAL_TEXT], where[2 * DIAL_TEXT];
	const char *comma = "";

	vg_send_all(asker->fd, "{\"sessions\": [", 14);
	for (unsigned i = 0; i < DIAL_SESSIONS; i++) {
		struct dial_session one;

		pthread_mutex_lock(&dialer.lock);
		one = dialer.session[i];
		pthread_mutex_unlock(&dialer.lock);
		if (!one.used || !one.begun)
			continue;
		vg_json_quote(one.name, name, sizeof(name));
		vg_json_quote(one.text, text, sizeof(text));
		vg_json_quote(one.where, where, sizeof(where));
		snprintf(line, sizeof(line), "%s{\"pid\": %u, \"name\": %s, \"state\": \"%s\", \"since_s\": %llu, "
			 "\"connections\": %u, \"where\": %s, \"text\": %s}", comma, one.pid, name, states[one.state],
			 (unsigned long long)one.since_s, one.connections, where, text);
		vg_send_all(asker->fd, line, strlen(line));
		comma = ", ";
	}
	vg_send_all(asker->fd, "]}\n", 3);
}

/* The next line, without its end; negative: there is none any more. */
static int read_line(struct dial_session *session, char *line, size_t size)
{
	size_t filled = 0;

	while (filled + 1 < size) {
		struct pollfd wait = { session->fd, POLLIN, 0 };

		if (poll(&wait, 1, TICK_MS) != 1) {
			if (session->begun && session->state == DIAL_UP)
				dial_keep_broker(session);
			continue;
		}
		if (vg_recv_all(session->fd, line + filled, 1))
			return -ECONNRESET;
		if (line[filled] == '\n') {
			line[filled] = '\0';
			return 0;
		}
		filled++;
	}
	return -EMSGSIZE;
}

static int obey(struct dial_session *session, const char *line)
{
	char name[sizeof(session->name)] = "";
	unsigned pid;
	int at = 0;

	if (!strcmp(line, "status")) {
		report(session);
		return 0;
	}
	if (!session->begun && sscanf(line, "new %u %n", &pid, &at) == 1 && at) {
		vg_clean_text(name, sizeof(name), line + at, strlen(line + at));
		pthread_mutex_lock(&dialer.lock);
		memcpy(session->name, name, sizeof(name));
		session->pid = pid;
		session->begun = true;
		dialer.sessions++;
		pthread_mutex_unlock(&dialer.lock);
		return connect_session(session);
	}
	if (session->begun && !strncmp(line, "again", 5)) {
		dial_note(session, DIAL_DOWN, line[5] ? line + 6 : "");
		return connect_session(session);
	}
	return -EPROTO;
}

static void *serve(void *argument)
{
	struct dial_session *session = argument;
	char line[LINE];

	while (!read_line(session, line, sizeof(line)) && !obey(session, line))
		continue;
	pthread_mutex_lock(&dialer.lock);
	dialer.sessions -= session->begun;
	if (!dialer.sessions) {
		vg_close_fd(&dialer.broker); /* what was bound for them may go */
		dialer.broker_lost = false;
	}
	close(session->fd);
	session->used = false;
	pthread_mutex_unlock(&dialer.lock);
	return NULL;
}

static void accept_session(int listen)
{
	int fd = accept4(listen, NULL, NULL, SOCK_CLOEXEC);
	struct dial_session *session = NULL;
	pthread_attr_t attributes;
	pthread_t thread;
	int error = -EUSERS;

	if (fd < 0)
		return;
	pthread_mutex_lock(&dialer.lock);
	for (unsigned i = 0; i < DIAL_SESSIONS && !session; i++)
		if (!dialer.session[i].used)
			session = &dialer.session[i];
	if (session)
		*session = (struct dial_session){ .used = true, .fd = fd, .since_s = (uint64_t)time(NULL) };
	pthread_mutex_unlock(&dialer.lock);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	if (session)
		error = pthread_create(&thread, &attributes, serve, session);
	pthread_attr_destroy(&attributes);
	if (!error)
		return;
	vg_send_all(fd, "error too many processes of this VM use the link\n", 49);
	close(fd);
	pthread_mutex_lock(&dialer.lock);
	if (session)
		session->used = false;
	pthread_mutex_unlock(&dialer.lock);
}

/* ---- the program ---- */

/* A keeper holds its lock for as long as it lives. */
static bool has_keeper(uint64_t begun_ms)
{
	static bool seen;
	VG_FD int fd = options.lock ? open(options.lock, O_RDONLY | O_CLOEXEC) : -1;
	bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

	seen |= held;
	return !options.lock || held || (!seen && vg_now_ms() - begun_ms < LOCK_FIRST_MS);
}

static int parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", 1, NULL, 'd' }, { "keeper-lock", 1, NULL, 'k' }, { "owner", 1, NULL, 'o' },
		{ "detach", 0, NULL, 'D' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'd')
			dialer.directory = optarg;
		else if (option == 'k')
			options.lock = optarg;
		else if (option == 'D')
			options.detach = true;
		else if (option == 'o' && sscanf(optarg, "%u:%u", &options.uid, &options.gid) == 2)
			options.owned = true;
		else
			return -EINVAL;
	}
	return optind == argc && dialer.directory ? 0 : -EINVAL;
}

static int begin(int *listen)
{
	char path[512], error[256];

	snprintf(path, sizeof(path), "%s/dial.sock", dialer.directory);
	*listen = vg_listen(path, 0600);
	if (*listen < 0) {
		fprintf(stderr, "dial: cannot listen at %s: %s\n", path, strerror(-*listen));
		return *listen;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!options.owned || geteuid())
		return 0;
	if (lchown(path, options.uid, options.gid)) {
		fprintf(stderr, "dial: chown %s: %s\n", path, strerror(errno));
		return -errno;
	}
	if (!sandbox_renounce(options.uid, options.gid, error, sizeof(error)))
		return 0;
	fprintf(stderr, "dial: %s\n", error);
	return -EPERM;
}

int main(int argc, char **argv)
{
	uint64_t begun_ms = vg_now_ms();
	int listen;

	if (parse(argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	if (begin(&listen))
		return 1;
	if (options.detach && daemon(1, 0))
		return 1;
	while (has_keeper(begun_ms)) {
		struct pollfd wait = { listen, POLLIN, 0 };

		if (poll(&wait, 1, TICK_MS) == 1)
			accept_session(listen);
		dial_watch_broker();
	}
	return 0;
}
