/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: a line of JSON each way. {"command": "status" | "stop" | "restart" | "set-size" | "share" | "limit",
 * ...};
 * set-size has "size" and limit "device-memory", in bytes; share has "compute", in percent, and may have "priority".
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "keeper.h"

/* What follows "key": in a flat object; NULL if it is not there. */
static const char *find_value(const char *line, const char *key)
{
	size_t length = strlen(key);

	for (const char *at = line; (at = strstr(at, key)); at += length) {
		const char *after = at + length;

		if (at == line || at[-1] != '"' || *after++ != '"')
			continue;
		while (isspace((unsigned char)*after))
			after++;
		if (*after++ != ':')
			continue;
		while (isspace((unsigned char)*after))
			after++;
		return after;
	}
	return NULL;
}

static bool is_command(const char *value, const char *name)
{
	size_t length = strlen(name);

	return value && value[0] == '"' && !strncmp(value + 1, name, length) && value[1 + length] == '"';
}

static void reply_error(FILE *out, const char *why)
{
	fputs("{\"ok\": false, \"error\": ", out);
	keeper_json_text(out, why, strlen(why));
	fputs("}\n", out);
}

static void set_size(struct keeper *keeper, const char *line, FILE *out)
{
	const char *value = find_value(line, "size");
	int error = value ? keeper_set_size(keeper, strtoull(value, NULL, 10)) : -EINVAL;

	if (error)
		reply_error(out, error == -EINVAL ? "size must be a power of two from 1 MiB to 1 GiB" : strerror(-error));
	else
		keeper_write_status(keeper, out);
}

/* The answer is the status, whose "change" says later how it ended: the worker decides. */
static void change_memory(struct keeper *keeper, const char *line, FILE *out)
{
	const char *value = find_value(line, "device-memory");
	uint64_t bytes = value ? strtoull(value, NULL, 10) : 0;

	if (!bytes || bytes > INT64_MAX)
		return reply_error(out, "device-memory must be a number of bytes");
	keeper_change_memory(keeper, bytes);
	keeper_write_status(keeper, out);
}

static void set_compute(struct keeper *keeper, const char *line, FILE *out)
{
	const char *value = find_value(line, "compute");
	const char *word = find_value(line, "priority");
	int priority = word ? keeper_read_priority(word + (*word == '"')) : (int)keeper->share.priority;
	int error = priority < 0 ? -EINVAL : keeper_set_share(keeper, value ? keeper_read_percent(value) : 0, (uint32_t)priority);

	if (error)
		reply_error(out, error == -ENOENT ? "this channel has no share of the GPU's time" : "compute must be from 1 to 100 percent, priority low, normal or high");
	else
		keeper_write_status(keeper, out);
}

static void obey(struct keeper *keeper, const char *line, FILE *out)
{
	const char *command = find_value(line, "command");

	if (is_command(command, "status")) {
		keeper_write_status(keeper, out);
	} else if (is_command(command, "stop")) {
		keeper->stopping = true;
		fputs("{\"ok\": true}\n", out);
	} else if (is_command(command, "restart")) {
		keeper_mark_lost(keeper);
		keeper_stop_worker(keeper);
		fputs("{\"ok\": true}\n", out);
	} else if (is_command(command, "set-size")) {
		set_size(keeper, line, out);
	} else if (is_command(command, "share")) {
		set_compute(keeper, line, out);
	} else if (is_command(command, "limit")) {
		change_memory(keeper, line, out);
	} else {
		reply_error(out, "unknown command: status, stop, restart, set-size, share and limit are known");
	}
}

static void answer_line(struct keeper *keeper, struct client *client)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);

	if (!out)
		return;
	obey(keeper, client->line, out);
	fclose(out);
	/* the asker gets what its socket's buffer takes: we wait for nobody */
	if (send(client->fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)length)
		vg_close_fd(&client->fd);
	free(text);
}

void keeper_accept_client(struct keeper *keeper)
{
	VG_FD int fd = accept4(keeper->control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (unsigned i = 0; fd >= 0 && i < KEEPER_CLIENTS; i++) {
		if (keeper->client[i].fd >= 0)
			continue;
		keeper->client[i].fd = fd;
		keeper->client[i].filled = 0;
		fd = -1;
	}
}

/* For a simulated machine, whose state names processes by their numbers: see VGPUMGR_SIM_PIDS in sim/native/state. */
void keeper_answer_pid(struct keeper *keeper)
{
	VG_FD int fd = accept4(keeper->pids, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);

	if (fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		send(fd, &peer.pid, sizeof(peer.pid), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void keeper_serve_client(struct keeper *keeper, struct client *client)
{
	ssize_t n = recv(client->fd, client->line + client->filled, KEEPER_LINE - 1 - client->filled, MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		vg_close_fd(&client->fd);
		return;
	}
	client->filled += (size_t)n;
	client->line[client->filled] = '\0';
	while (client->fd >= 0 && (end = memchr(client->line, '\n', client->filled))) {
		*end = '\0';
		answer_line(keeper, client);
		client->filled -= (size_t)(end + 1 - client->line);
		memmove(client->line, end + 1, client->filled + 1);
	}
	if (client->filled == KEEPER_LINE - 1)
		vg_close_fd(&client->fd);
}
