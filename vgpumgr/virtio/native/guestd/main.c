/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-guestd: options and the loop. */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent.h"

enum { SOON_MS = 10 };

static const char usage[] =
	"usage: vgpumgr-guestd [--socket PATH] [--mode 0666] [--group GROUP] [--transport auto|ring|serial]\n"
	"                      [--lanes auto|private|shared] [--direct-group GROUP] [--user-lanes N]\n"
	"Gives this VM's processes lanes of the vgpumgr channel. For tests on one host:\n"
	"                      [--ivshmem-socket PATH]... [--serial-listen PATH]...\n";

static int choose_transport(struct agent *agent, const char *name)
{
	agent->use_ring = strcmp(name, "serial") != 0;
	agent->use_serial = strcmp(name, "ring") != 0;
	return !strcmp(name, "auto") || agent->use_ring != agent->use_serial ? 0 : -EINVAL;
}

static int choose_lanes(struct agent *agent, const char *name)
{
	static const char *const names[] = {
		[LANES_AUTO] = "auto", [LANES_PRIVATE] = "private", [LANES_SHARED] = "shared",
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i])) {
			agent->lanes = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int choose_group(gid_t *group, const char *name)
{
	*group = agent_group(name);
	if (*group != (gid_t)-1)
		return 0;
	agent_log("there is no group %s", name);
	return -EINVAL;
}

/* The next free place of a list; NULL entries of it are free. */
static int add_path(const char *list[AGENT_CHANNELS], const char *path)
{
	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		if (!list[i]) {
			list[i] = path;
			return 0;
		}
	}
	return -EINVAL;
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
		return choose_group(&agent->group, value);
	case 'd':
		return choose_group(&agent->direct_group, value);
	case 'L':
		return choose_lanes(agent, value);
	case 'u':
		return sscanf(value, "%u", &agent->user_lanes) == 1 ? 0 : -EINVAL;
	case 't':
		return choose_transport(agent, value);
	case 'i':
		return add_path(agent->ivshmem_socket, value);
	case 'l':
		return add_path(agent->serial_listen, value);
	default:
		return -EINVAL;
	}
}

static int parse(struct agent *agent, int argc, char **argv)
{
	static const struct option known[] = {
		{ "socket", 1, NULL, 's' },    { "mode", 1, NULL, 'm' },
		{ "group", 1, NULL, 'g' },     { "transport", 1, NULL, 't' },
		{ "lanes", 1, NULL, 'L' },     { "direct-group", 1, NULL, 'd' },
		{ "user-lanes", 1, NULL, 'u' }, { "ivshmem-socket", 1, NULL, 'i' },
		{ "serial-listen", 1, NULL, 'l' }, { 0 },
	};
	int option;

	agent->socket = VG_AGENT_SOCKET;
	agent->mode = 0666;
	agent->group = agent->direct_group = (gid_t)-1;
	choose_transport(agent, "auto");
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		if (parse_option(agent, option, optarg))
			return -EINVAL;
	return optind == argc ? 0 : -EINVAL;
}

static int listen_for_test(struct agent_serial *serial, unsigned number)
{
	if (!serial->path)
		return 0;
	serial->link.number = number;
	serial->listen = vg_listen(serial->path, 0600);
	if (serial->listen >= 0)
		return 0;
	agent_log("cannot listen at %s: %s", serial->path, strerror(-serial->listen));
	return serial->listen;
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
	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		int error;

		agent_ring_init(agent, i);
		agent_serial_init(agent, i);
		error = listen_for_test(&agent->serial[i], i);
		if (error)
			return error;
	}
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		agent->client[i].fd = agent->client[i].relay.socket = -1;
	return 0;
}

/* Every device of the VM has been greeted. */
static bool is_connected(const struct agent *agent)
{
	bool any = false;

	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		if (agent->use_ring && agent->ring[i].memory && !agent->ring[i].link.greeted)
			return false;
		any |= agent->use_ring ? agent->ring[i].link.greeted : agent->serial[i].link.greeted;
	}
	return any;
}

/* Nothing is on its way: until the device is looked at again, or the next spare is due, before a process comes for it. */
static unsigned idle_us(const struct agent *agent)
{
	unsigned longest_us = is_connected(agent) ? 250000 : 50000;
	uint64_t now = vg_now_ms(), due = agent_relay_due_ms(agent);

	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		const struct link *link = &agent->ring[i].link;

		if (link->greeted && !link->reserved.generation && link->reserve_ms < due)
			due = link->reserve_ms;
	}
	if (due <= now)
		return 0;
	return due - now < longest_us / 1000 ? (unsigned)(due - now) * 1000 : longest_us;
}

/* Shared memory cannot wake a poll: while an answer is due, look often, and more so while it is due soon. */
static unsigned timeout_us(const struct agent *agent)
{
	for (unsigned i = 0; i < AGENT_CHANNELS; i++)
		if (agent_is_asking(&agent->ring[i].link)) {
			uint64_t waited_ms = vg_now_ms() - agent->asked_ms;

			/* it comes within a fraction of a millisecond, a sleep takes as much: the processor is given to others */
			if (!waited_ms)
				sched_yield();
			return !waited_ms ? 0 : waited_ms < SOON_MS ? 20 : 1000;
		}
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (agent->client[i].state == CLIENT_WAITING)
			return 10000;
	return idle_us(agent);
}

/* In tests every place has a path or is not used. */
static bool is_wanted(const char *const list[AGENT_CHANNELS], unsigned i)
{
	return !list[0] || list[i];
}

static struct pollfd watch_port(const struct agent_serial *serial)
{
	short events = POLLIN | (serial->out.filled ? POLLOUT : 0);

	return (struct pollfd){ serial->connected ? serial->fd : -1, events, 0 };
}

static struct pollfd watch_client(const struct client *client)
{
	bool full = client->state == CLIENT_SERIAL && agent_serial_full((const struct agent_serial *)client->link);

	return (struct pollfd){ client->fd, (short)((full ? 0 : POLLIN) | (client->out.filled ? POLLOUT : 0)), 0 };
}

static void tick(struct agent *agent)
{
	/* of the free places, one looks for a device: the others would look at the same ones */
	bool seeks_ring = false, seeks_port = false;

	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		struct agent_ring *ring = &agent->ring[i];
		struct agent_serial *serial = &agent->serial[i];

		if (agent->use_ring && is_wanted(agent->ivshmem_socket, i) && (ring->memory || !seeks_ring))
			agent_ring_tick(ring);
		seeks_ring |= !ring->memory && !ring->ivshmem_socket;
		if (agent->use_serial && is_wanted(agent->serial_listen, i) && (serial->fd >= 0 || !seeks_port))
			agent_serial_tick(serial);
		seeks_port |= serial->fd < 0 && !serial->path;
	}
	agent_clients_tick(agent);
	agent_relay_prepare(agent);
}

static void loop(struct agent *agent)
{
	enum { LISTEN, SERIAL, CLIENTS = SERIAL + AGENT_CHANNELS, RELAYS = CLIENTS + AGENT_CLIENTS,
	       ALL = RELAYS + AGENT_CLIENTS };

	for (;;) {
		struct timespec pause = { 0 };
		struct pollfd wait[ALL] = { [LISTEN] = { agent->listen, POLLIN, 0 } };

		for (unsigned i = 0; i < AGENT_CHANNELS; i++)
			wait[SERIAL + i] = watch_port(&agent->serial[i]);
		for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
			wait[CLIENTS + i] = watch_client(&agent->client[i]);
			wait[RELAYS + i] = (struct pollfd){ agent->client[i].relay.socket, POLLIN, 0 };
		}
		pause.tv_nsec = timeout_us(agent) * 1000L;
		ppoll(wait, ALL, &pause, NULL);
		for (unsigned i = 0; i < AGENT_CHANNELS; i++)
			if (wait[SERIAL + i].revents)
				agent_serial_event(&agent->serial[i], wait[SERIAL + i].revents);
		for (unsigned i = 0; i < AGENT_CLIENTS; i++)
			if (wait[CLIENTS + i].revents && agent->client[i].fd == wait[CLIENTS + i].fd)
				agent_client_event(agent, &agent->client[i], wait[CLIENTS + i].revents);
		for (unsigned i = 0; i < AGENT_CLIENTS; i++)
			if (wait[RELAYS + i].revents && agent->client[i].relay.socket == wait[RELAYS + i].fd)
				agent_client_relay_gone(agent, &agent->client[i]);
		if (wait[LISTEN].revents)
			agent_accept(agent);
		tick(agent);
	}
}

static struct agent agent;
static char **arguments;

/* The device was unplugged under our eyes. Processes are told through the guard; the agent starts afresh. */
static void on_bus_error(int number)
{
	(void)number;
	for (unsigned i = 0; i < AGENT_CHANNELS; i++)
		if (agent.ring[i].guard)
			vg_store32(agent.ring[i].guard, 1);
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		if (agent.client[i].relay.pid)
			agent_relay_end(&agent.client[i]);
	if (agent.spare.pid)
		kill(agent.spare.pid, SIGKILL);
	execv("/proc/self/exe", arguments);
	_exit(1);
}

int main(int argc, char **argv)
{
	/* not deferred: the mask would be the next program's too */
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };

	if (argc == 2 && !strcmp(argv[1], "--relay"))
		return relay_main();
	/* children of what this process was before a device went: they have been killed */
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	if (parse(&agent, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	arguments = argv;
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1000UL); /* short waits are short: see timeout() */
	sigaction(SIGBUS, &action, NULL);
	if (begin(&agent))
		return 1;
	loop(&agent);
}
