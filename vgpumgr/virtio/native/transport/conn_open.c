/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the agent for a lane, giving it back, and what a fork does to it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "conn.h"
#include "util.h"

/* The worker may be making a context on a busy GPU before it accepts a lane. */
enum { OPEN_TIMEOUT_S = 60 };

/* No pthread_once: its symbol is newer than the glibc of guests that we want to run on. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vg_conn *list;
static bool watching_fork;
static __thread uint32_t devices_told;

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&list_lock);
}

/* The child starts unconnected. Its copy of the life-line must go, or the lane would outlive the parent. */
static void after_fork_in_child(void)
{
	for (struct vg_conn *conn = list; conn; conn = conn->next) {
		conn->foreign = true;
		vg_close_fd(&conn->socket);
	}
	list = NULL;
	pthread_mutex_unlock(&list_lock);
}

static void remember(struct vg_conn *conn)
{
	pthread_mutex_lock(&list_lock);
	if (!watching_fork)
		watching_fork = !pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	conn->next = list;
	list = conn;
	pthread_mutex_unlock(&list_lock);
}

static void forget(struct vg_conn *conn)
{
	pthread_mutex_lock(&list_lock);
	for (struct vg_conn **at = &list; *at; at = &(*at)->next) {
		if (*at == conn) {
			*at = conn->next;
			break;
		}
	}
	pthread_mutex_unlock(&list_lock);
}

static int ask_agent(struct vg_conn *conn, const char *api_version, const char *name, struct vg_agent_answer *answer,
		     int fds[VG_AGENT_FDS])
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };
	struct timeval limit = { .tv_sec = OPEN_TIMEOUT_S }, none = { 0 };
	int error;

	request.device = conn->device;
	snprintf(request.api_version, sizeof(request.api_version), "%s", api_version);
	snprintf(request.name, sizeof(request.name), "%s", name);
	error = vg_send_all(conn->socket, &request, sizeof(request)); /* at once: connecting has woken the agent */
	setsockopt(conn->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (!error)
		error = vg_recv_fds(conn->socket, answer, sizeof(*answer), fds, VG_AGENT_FDS);
	setsockopt(conn->socket, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	if (error) {
		vg_conn_say("the guest agent did not answer: %s", strerror(-error));
		return error == -EAGAIN ? -ETIMEDOUT : -ENOTCONN;
	}
	answer->text[sizeof(answer->text) - 1] = '\0';
	if (answer->magic != VG_AGENT_MAGIC) {
		vg_conn_say("the guest agent speaks another protocol than this library (version %d)", VG_WIRE_VERSION);
		return -EPROTO;
	}
	devices_told = answer->devices;
	if (answer->error)
		vg_conn_say("%s", answer->text);
	return answer->error;
}

static int connect_agent(struct vg_conn *conn)
{
	const char *path = secure_getenv("VGPUMGR_AGENT");

	if (!path || !*path)
		path = VG_AGENT_SOCKET;
	conn->socket = vg_connect(path);
	if (conn->socket >= 0)
		return 0;
	vg_conn_say("no guest agent at %s: %s (is vgpumgr-guestd running?)", path, strerror(-conn->socket));
	return -ENOTCONN;
}

static int open_lane(struct vg_conn *conn, const char *api_version, const char *name)
{
	int fds[VG_AGENT_FDS] = { -1, -1, -1 };
	struct vg_agent_answer answer;
	int error = conn->socket < 0 ? connect_agent(conn) : 0;

	if (!error)
		error = ask_agent(conn, api_version, name, &answer, fds);
	if (!error) {
		conn->devices = answer.devices;
		snprintf(conn->device_name, sizeof(conn->device_name), "%.*s", VG_DEVICE_NAME - 1, answer.text);
		conn->lane = answer.lane;
		conn->generation = answer.generation;
		error = answer.transport == VG_TRANSPORT_RING ? vg_ring_attach(conn, &answer, fds) :
								vg_serial_attach(conn);
	}
	if (!error)
		error = vg_conn_compare(conn, answer.hash);
	for (unsigned i = 0; i < VG_AGENT_FDS; i++)
		vg_close_fd(&fds[i]);
	return error;
}

static void free_conn(struct vg_conn *conn)
{
	if (conn->ops)
		conn->ops->destroy(conn);
	vg_close_fd(&conn->socket);
	for (unsigned i = 0; i < VG_SLOTS; i++) {
		free(conn->slot[i].large);
		free(conn->slot[i].bulk);
	}
	free(conn);
}

int vg_conn_open(const struct vg_interface *interface, const char *api_version, struct vg_conn **out)
{
	return vg_conn_open_device(interface, api_version, 0, out);
}

uint32_t vg_conn_devices(const struct vg_conn *conn)
{
	return conn->devices;
}

uint32_t vg_conn_devices_told(void)
{
	return devices_told;
}

const char *vg_conn_device_name(const struct vg_conn *conn)
{
	return conn->device_name;
}

static int open_conn(const struct vg_interface *interface, const char *api_version, const char *name, uint32_t device,
		     int socket, struct vg_conn **out)
{
	struct vg_conn *conn = calloc(1, sizeof(*conn));
	int error;

	vg_conn_say("%s", "");
	devices_told = 0;
	if (!conn) {
		vg_close_fd(&socket);
		return -ENOMEM;
	}
	conn->socket = socket;
	conn->device = device;
	conn->interface = interface;
	error = open_lane(conn, api_version, name);
	if (error) {
		free_conn(conn);
		return error;
	}
	remember(conn);
	*out = conn;
	return 0;
}

int vg_conn_open_device(const struct vg_interface *interface, const char *api_version, uint32_t device,
			struct vg_conn **out)
{
	return open_conn(interface, api_version, program_invocation_short_name, device, -1, out);
}

int vg_conn_open_on(const struct vg_interface *interface, const char *api_version, const char *name, int socket,
		    struct vg_conn **out)
{
	return open_conn(interface, api_version, name, 0, socket, out);
}

void vg_conn_close(struct vg_conn *conn)
{
	if (!conn)
		return;
	if (!conn->foreign)
		forget(conn);
	free_conn(conn);
}
