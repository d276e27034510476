/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: of the file, or of a broker that is asked; and connecting to them. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "../transport/util.h"
#include "dial_parts.h"
#include "json.h"
#include "stream.h"

enum { CONNECT_MS = 5000, STEP_MS = 250, LINE = 4096 };

/* ---- the broker ---- */

static int read_tcp(const char *list, struct dial_address *address)
{
	int count = 0;

	for (const char *pair = vg_json_first(list); pair && count < DIAL_ADDRESSES; pair = vg_json_next(pair)) {
		const char *host = vg_json_first(pair), *port = host ? vg_json_next(host) : NULL;
		unsigned number;

		if (!port || vg_json_string(host, address[count].host, sizeof(address[count].host)) ||
		    sscanf(port, "%u", &number) != 1 || number > 65535)
			continue;
		snprintf(address[count++].port, sizeof(address->port), "%u", number);
	}
	return count;
}

/* -EAGAIN: it takes longer. */
static int take_line(struct dial_session *session, const char *line, struct dial_address *address, char *text, size_t size)
{
	const char *wait = vg_json_member(line, "wait"), *error = vg_json_member(line, "error");
	const char *tcp = vg_json_member(line, "tcp");

	if (wait && !vg_json_string(wait, text, size)) {
		dial_note(session, DIAL_WAITING, text);
		return dial_say(session, "wait", text) ? -ECONNRESET : -EAGAIN;
	}
	if (error && !vg_json_string(error, text, size))
		return -EACCES;
	snprintf(text, size, "the daemon of this host gives no answer that makes sense");
	return tcp ? read_tcp(tcp, address) : -EPROTO;
}

/* Until the process has gone. */
static int hear_broker(struct dial_session *session, int broker, struct dial_address *address, char *text, size_t size)
{
	char line[LINE];
	size_t filled = 0;

	for (;;) {
		struct pollfd wait = { broker, POLLIN, 0 };
		int error;

		if (dial_is_gone(session))
			return -ECANCELED;
		if (poll(&wait, 1, STEP_MS) != 1)
			continue;
		if (filled + 1 == sizeof(line) || recv(broker, line + filled, 1, 0) != 1) {
			snprintf(text, size, "the daemon of this host has ended");
			return -ECONNRESET;
		}
		if (line[filled++] != '\n')
			continue;
		line[filled] = '\0';
		filled = 0;
		error = take_line(session, line, address, text, size);
		if (error != -EAGAIN)
			return error;
	}
}

/* The connection that there is, or a new one. */
static int join_broker(const char *path, char *text, size_t size)
{
	int fd;

	pthread_mutex_lock(&dialer.lock);
	if (dialer.broker < 0)
		dialer.broker = vg_connect_now(path);
	fd = dialer.broker;
	dialer.broker_lost &= fd < 0;
	pthread_mutex_unlock(&dialer.lock);
	if (fd < 0)
		snprintf(text, size, "the daemon of this host does not run: %s", strerror(-fd));
	return fd;
}

static int ask_broker(struct dial_session *session, const char *path, const char *id, struct dial_address *address,
		      char *text, size_t size)
{
	char request[512], name[80], attachment[160];
	int result, broker;

	vg_json_quote(session->name, name, sizeof(name));
	vg_json_quote(id, attachment, sizeof(attachment));
	snprintf(request, sizeof(request), "{\"dial\": %s, \"pid\": %u, \"name\": %s}\n", attachment, session->pid, name);
	pthread_mutex_lock(&dialer.asking);
	broker = join_broker(path, text, size);
	result = broker;
	if (broker >= 0)
		result = vg_send_all(broker, request, strlen(request));
	if (broker >= 0 && !result)
		result = hear_broker(session, broker, address, text, size);
	if (broker >= 0 && (result == -ECONNRESET || result == -ECANCELED || result == -EPIPE)) {
		/* what it says from now on would be the answer to this question */
		pthread_mutex_lock(&dialer.lock);
		vg_close_fd(&dialer.broker);
		pthread_mutex_unlock(&dialer.lock);
	}
	pthread_mutex_unlock(&dialer.asking);
	return result;
}

void dial_watch_broker(void)
{
	struct pollfd wait = { .events = POLLIN };

	if (pthread_mutex_trylock(&dialer.asking))
		return;
	pthread_mutex_lock(&dialer.lock);
	wait.fd = dialer.broker;
	if (wait.fd >= 0 && poll(&wait, 1, 0) == 1) { /* it says nothing without being asked: it has ended */
		vg_close_fd(&dialer.broker);
		dialer.broker_lost = true;
	}
	pthread_mutex_unlock(&dialer.lock);
	pthread_mutex_unlock(&dialer.asking);
}

/* ---- the file ---- */

static int add_line(const char *line, struct dial_address *address)
{
	return sscanf(line, "tcp %127s %7s", address->host, address->port) == 2;
}

/* The attachment's id: of the line, or the name of the channel's directory. */
static void name_attachment(char *id, size_t size)
{
	char path[512], *slash;

	snprintf(path, sizeof(path), "%s", dialer.directory);
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	slash = strrchr(path, '/');
	snprintf(id, size, "%.63s", slash ? slash + 1 : path);
}

int dial_find(struct dial_session *session, struct dial_address *address, char *text, size_t size)
{
	char path[512], line[512], broker[256], id[64];
	int count = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/address", dialer.directory);
	file = fopen(path, "re");
	if (!file) {
		snprintf(text, size, "cannot read %s: %s", path, strerror(errno));
		return -errno;
	}
	broker[0] = '\0';
	name_attachment(id, sizeof(id));
	while (fgets(line, sizeof(line), file) && count < DIAL_ADDRESSES) {
		if (add_line(line, &address[count]))
			count++;
		else if (sscanf(line, "broker %255s %63s", broker, id) >= 1)
			break;
	}
	fclose(file);
	if (broker[0])
		return ask_broker(session, broker, id, address, text, size);
	if (!count)
		snprintf(text, size, "%s has no address", path);
	return count;
}

void dial_keep_broker(struct dial_session *session)
{
	struct dial_address address[DIAL_ADDRESSES];
	char text[DIAL_TEXT];
	bool lost;

	pthread_mutex_lock(&dialer.lock);
	lost = dialer.broker_lost;
	pthread_mutex_unlock(&dialer.lock);
	if (lost)
		dial_find(session, address, text, sizeof(text));
}

/* ---- connecting ---- */

static void set_options(int fd)
{
	int on = 1, idle_s = 10, unsent_ms = VG_LINK_DEAD_MS;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof(unsent_ms));
}

/* 0, or the errno of why not. */
static int await_connection(const struct dial_session *session, int fd)
{
	uint64_t until = vg_now_ms() + CONNECT_MS;
	struct pollfd wait = { fd, POLLOUT, 0 };
	socklen_t length = sizeof(int);
	int error = 0;

	while (poll(&wait, 1, STEP_MS) != 1)
		if (vg_now_ms() > until || dial_is_gone(session))
			return ETIMEDOUT;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
	return error;
}

int dial_connect(struct dial_session *session, const struct dial_address *address, char *where, size_t where_size,
		 char *text, size_t size)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *found = NULL;
	int fd = -1, error = getaddrinfo(address->host, address->port, &hints, &found);

	snprintf(where, where_size, "%.120s:%s", address->host, address->port);
	if (error)
		snprintf(text, size, "%.120s: %s", address->host, gai_strerror(error));
	for (struct addrinfo *one = error ? NULL : found; one && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		error = fd < 0 || (connect(fd, one->ai_addr, one->ai_addrlen) && errno != EINPROGRESS) ? errno : 0;
		if (!error)
			error = await_connection(session, fd);
		if (!error)
			break;
		snprintf(text, size, "cannot connect to %.120s:%s: %s", address->host, address->port, strerror(error));
		vg_close_fd(&fd);
	}
	if (found)
		freeaddrinfo(found);
	if (fd >= 0)
		set_options(fd);
	return fd;
}
