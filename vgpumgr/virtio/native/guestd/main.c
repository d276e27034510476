/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-guestd: options and the loop. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent.h"

static const char usage[] =
	"usage: vgpumgr-guestd [--socket PATH] [--mode 0666] [--group GID] [--transport auto|ring|serial]\n"
	"Gives this VM's processes lanes of the vgpumgr channel. For tests on one host:\n"
	"                      [--ivshmem-socket PATH] [--serial-listen PATH]\n";

void agent_log(const char *format, ...)
{
	va_list arguments;

	fputs("vgpumgr-guestd: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static int choose_transport(struct agent *agent, const char *name)
{
	agent->use_ring = strcmp(name, "serial") != 0;
	agent->use_serial = strcmp(name, "ring") != 0;
	return !strcmp(name, "auto") || agent->use_ring != agent->use_serial ? 0 : -EINVAL;
}

static int parse_option(struct agent *agent, int option, const char *value)
{
	switch (option) {
	case 's':
		agent->socket = value;
		return 0;
	case 'm':
		return sscanf(value, "%o", &agent->mode) == 1 ? 0 : -EINVAL;
	case 'g':
		return sscanf(value, "%u", &agent->group) == 1 ? 0 : -EINVAL;
	case 't':
		return choose_transport(agent, value);
	case 'i':
		agent->ivshmem_socket = value;
		return 0;
	case 'l':
		agent->serial_listen = value;
		return 0;
	default:
		return -EINVAL;
	}
}

static int parse(struct agent *agent, int argc, char **argv)
{
	static const struct option known[] = {
		{ "socket", 1, NULL, 's' },    { "mode", 1, NULL, 'm' },
		{ "group", 1, NULL, 'g' },     { "transport", 1, NULL, 't' },
		{ "ivshmem-socket", 1, NULL, 'i' }, { "serial-listen", 1, NULL, 'l' }, { 0 },
	};
	int option;

	agent->socket = VG_AGENT_SOCKET;
	agent->mode = 0666;
	agent->group = (gid_t)-1;
	choose_transport(agent, "auto");
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		if (parse_option(agent, option, optarg))
			return -EINVAL;
	return optind == argc ? 0 : -EINVAL;
}

static int begin(struct agent *agent)
{
	char directory[AGENT_PATH];
	char *slash;

	snprintf(directory, sizeof(directory), "%s", agent->socket);
	slash = strrchr(directory, '/');
	if (slash && slash != directory) {
		*slash = '\0';
		mkdir(directory, 0755);
	}
	agent->listen = vg_listen(agent->socket, agent->mode);
	if (agent->listen < 0) {
		agent_log("cannot listen at %s: %s", agent->socket, strerror(-agent->listen));
		return agent->listen;
	}
	if (agent->group != (gid_t)-1 && chown(agent->socket, (uid_t)-1, agent->group))
		agent_log("cannot give %s to group %u: %s", agent->socket, agent->group, strerror(errno));
	agent_ring_init(agent);
	agent_serial_init(agent);
	if (agent->serial_listen && (agent->serial.listen = vg_listen(agent->serial_listen, 0600)) < 0) {
		agent_log("cannot listen at %s: %s", agent->serial_listen, strerror(-agent->serial.listen));
		return agent->serial.listen;
	}
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		agent->client[i].fd = -1;
	return 0;
}

/* Shared memory cannot wake a poll: while an answer is due, look often. */
static int timeout(const struct agent *agent)
{
	if (agent_is_asking(&agent->ring.link))
		return 1;
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (agent->client[i].state == CLIENT_WAITING)
			return 10;
	return agent->ring.link.greeted || (!agent->use_ring && agent->serial.link.greeted) ? 250 : 50;
}

static void loop(struct agent *agent)
{
	enum { LISTEN, SERIAL, CLIENTS, ALL = CLIENTS + AGENT_CLIENTS };
	struct agent_serial *serial = &agent->serial;

	for (;;) {
		struct pollfd wait[ALL] = { [LISTEN] = { agent->listen, POLLIN, 0 }, [SERIAL] = { -1, POLLIN, 0 } };
		short read_clients = agent_serial_full(agent) ? 0 : POLLIN;

		if (serial->connected)
			wait[SERIAL].fd = serial->fd;
		if (serial->out.filled)
			wait[SERIAL].events |= POLLOUT;
		for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
			struct client *client = &agent->client[i];
			short events = client->state == CLIENT_SERIAL ? read_clients : POLLIN;

			wait[CLIENTS + i] = (struct pollfd){ client->fd, events, 0 };
			if (client->out.filled)
				wait[CLIENTS + i].events |= POLLOUT;
		}
		poll(wait, ALL, timeout(agent));
		if (wait[SERIAL].revents)
			agent_serial_event(agent, wait[SERIAL].revents);
		for (unsigned i = 0; i < AGENT_CLIENTS; i++)
			if (wait[CLIENTS + i].revents && agent->client[i].fd == wait[CLIENTS + i].fd)
				agent_client_event(agent, &agent->client[i], wait[CLIENTS + i].revents);
		if (wait[LISTEN].revents)
			agent_accept(agent);
		agent_ring_tick(agent);
		agent_serial_tick(agent);
		agent_clients_tick(agent);
	}
}

static struct agent agent;
static char **arguments;

/* The device was unplugged under our eyes. Processes are told through the guard; the agent starts afresh. */
static void on_bus_error(int number)
{
	(void)number;
	if (agent.ring.guard)
		vg_store32(agent.ring.guard, 1);
	execv("/proc/self/exe", arguments);
	_exit(1);
}

int main(int argc, char **argv)
{
	/* not deferred: the mask would be the next program's too */
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };

	if (parse(&agent, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	arguments = argv;
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGBUS, &action, NULL);
	if (begin(&agent))
		return 1;
	loop(&agent);
}
