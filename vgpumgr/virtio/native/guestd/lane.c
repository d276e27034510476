/* SPDX-License-Identifier: Apache-2.0 */
/* Private lanes: the memory that a process gets in place of the window, and the relay that serves it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent.h"

/* Ids that no distribution hands out, one for each relay that can be at once. */
enum { IDENTITY_FIRST = 1879048192 };
/* the next spare does not compete with the first calls of the process that has the last one */
enum { SPARE_AFTER_MS = 30 };

extern char **environ;

/* ---- the relay's process ---- */

static int spawn(pid_t *pid, int socket)
{
	char *words[] = { "vgpumgr-guestd", "--relay", NULL };
	posix_spawn_file_actions_t actions;
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return -error;
	/* all else is closed by exec */
	error = posix_spawn_file_actions_adddup2(&actions, socket, RELAY_SOCKET);
	if (!error)
		error = posix_spawn(pid, "/proc/self/exe", &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -error;
}

static int start(struct relay *relay)
{
	int pair[2], error;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	error = spawn(&relay->pid, pair[1]);
	close(pair[1]);
	if (error) {
		close(pair[0]);
		relay->pid = 0;
		return error;
	}
	relay->socket = pair[0];
	return 0;
}

/* Whether a process waits there for its job. */
static bool is_waiting(const struct relay *relay)
{
	char byte;

	return relay->pid && recv(relay->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
}

static void reap(struct relay *relay)
{
	kill(relay->pid, SIGKILL);
	while (waitpid(relay->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	vg_close_fd(&relay->socket);
	relay->pid = 0;
}

static int take_relay(struct agent *agent, struct client *client)
{
	struct relay *spare = &agent->spare;

	agent->spare_ms = vg_now_ms() + SPARE_AFTER_MS;
	if (spare->pid && !is_waiting(spare))
		reap(spare);
	if (!spare->pid)
		return start(&client->relay);
	client->relay.pid = spare->pid;
	client->relay.socket = spare->socket;
	spare->pid = 0;
	spare->socket = -1;
	return 0;
}

/* Whether the next private lane would have to wait for its relay's start. */
static bool lacks_spare(const struct agent *agent)
{
	bool wanted = false;

	for (unsigned i = 0; i < AGENT_CHANNELS; i++)
		wanted |= agent->ring[i].link.greeted;
	return wanted && !agent->spare.pid && agent_keeps_apart(agent);
}

uint64_t agent_relay_due_ms(const struct agent *agent)
{
	return lacks_spare(agent) ? agent->spare_ms : UINT64_MAX;
}

void agent_relay_prepare(struct agent *agent)
{
	if (vg_now_ms() >= agent_relay_due_ms(agent) && start(&agent->spare))
		agent->spare_ms = vg_now_ms() + 1000;
}

void agent_relay_end(struct client *client)
{
	struct relay *relay = &client->relay;
	uint64_t none = 0;
	off_t life = VG_LANES_OFFSET + offsetof(struct vg_control, life);

	/* this first, for what comes after it may take the relay's word */
	if (relay->pid)
		kill(relay->pid, SIGKILL);
	if (relay->memory >= 0 && pwrite(relay->memory, &none, sizeof(none), life) != sizeof(none))
		agent_log("cannot tell process %u that its lane has ended", client->pid);
}

bool agent_relay_gone(struct client *client)
{
	struct relay *relay = &client->relay;
	char why[RELAY_TEXT], text[RELAY_TEXT];
	ssize_t n = recv(relay->socket, why, sizeof(why), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0) {
		vg_clean_text(text, sizeof(text), why, (size_t)n);
		agent_log_client("the lane of process %u of user %u has ended: %s", client->pid, client->uid, text);
		return false;
	}
	agent_relay_end(client);
	reap(relay);
	vg_close_fd(&relay->memory);
	vg_close_fd(&relay->doorbell);
	return true;
}

/* ---- the client's memory ---- */

/* As a window with one lane, so that the libraries need not know the difference. */
static int fill_memory(int fd, const struct vg_layout *window, uint32_t number)
{
	struct vg_layout layout = *window;
	struct vg_header header = { .state = VG_STATE_READY, .number = number };

	layout.lane_count = 1;
	layout.size = VG_LANES_OFFSET + layout.lane_size;
	vg_layout_publish(&layout, &header);
	if (ftruncate(fd, (off_t)layout.size) || pwrite(fd, &header, sizeof(header), 0) != sizeof(header))
		return -EIO;
	/* not to be opened by others who have it for reading only, nor cut short under the relay */
	if (fchmod(fd, 0600) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return 0;
}

static int open_memory(struct relay *relay, const struct agent_ring *ring)
{
	vg_close_fd(&relay->memory); /* of a window that has gone meanwhile */
	vg_close_fd(&relay->doorbell);
	relay->memory = memfd_create("vgpumgr-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	relay->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (relay->memory < 0 || relay->doorbell < 0)
		return -errno;
	return fill_memory(relay->memory, &ring->layout, ring->link.number);
}

int agent_relay_start(struct agent *agent, struct client *client)
{
	int error = client->relay.pid ? 0 : take_relay(agent, client);

	return error ? error : open_memory(&client->relay, (struct agent_ring *)client->link);
}

static uint32_t identity(const struct agent *agent, const struct client *client)
{
	return geteuid() ? 0 : IDENTITY_FIRST + (uint32_t)(client - agent->client);
}

int agent_relay_serve(struct agent *agent, struct client *client, struct vg_agent_answer *answer, int fds[VG_AGENT_FDS])
{
	struct agent_ring *ring = (struct agent_ring *)client->link;
	struct relay *relay = &client->relay;
	struct relay_job job = {
		.generation = client->generation,
		.layout = ring->layout,
		.lane = client->lane,
		.doorbell_kind = ring->doorbell_kind,
		.identity = identity(agent, client),
		.agent = getpid(),
	};
	struct vg_control control = { .parked = 1, .life = client->generation };
	int error = 0;

	if (pwrite(relay->memory, &control, sizeof(control), VG_LANES_OFFSET) != sizeof(control))
		error = -EIO;
	if (!error)
		error = vg_send_fds(relay->socket, &job, sizeof(job),
				    (int[]){ ring->memory_fd, ring->doorbell_fd, relay->memory, relay->doorbell },
				    RELAY_FDS);
	answer->lane = 1;
	answer->memory_size = VG_LANES_OFFSET + ring->layout.lane_size;
	answer->doorbell = VG_DOORBELL_EVENTFD;
	fds[0] = relay->memory;
	fds[1] = relay->doorbell;
	return error;
}

bool agent_lane_is_busy(struct agent *agent, const struct client *client, uint32_t lane)
{
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		const struct client *other = &agent->client[i];

		if (other != client && other->relay.pid && other->link == client->link && other->lane == lane)
			return true;
	}
	return false;
}
