/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the agent serves: who a client is says the kernel, as of its connecting. */
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent.h"

enum { USER_CLIENTS = AGENT_CLIENTS / 4 * 3 };

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

gid_t agent_group(const char *name)
{
	FILE *file = fopen("/etc/group", "re");
	gid_t found = (gid_t)-1;
	struct group *group;
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (*name && !*end)
		found = (gid_t)number;
	while (file && found == (gid_t)-1 && (group = fgetgrent(file)))
		if (!strcmp(group->gr_name, name))
			found = group->gr_gid;
	if (file)
		fclose(file);
	return found;
}

static bool is_member(int fd, gid_t group, const struct ucred *peer)
{
	gid_t groups[256];
	socklen_t length = sizeof(groups);

	if (group == (gid_t)-1)
		return false;
	if (peer->gid == group)
		return true;
	/* one who is in more groups than that, or a kernel before 4.13: no member */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length))
		return false;
	for (size_t i = 0; i < length / sizeof(groups[0]); i++)
		if (groups[i] == group)
			return true;
	return false;
}

bool agent_keeps_apart(const struct agent *agent)
{
	/* only the socket's owner may open it: there is one user */
	if (agent->lanes == LANES_AUTO)
		return agent->mode & 077;
	return agent->lanes == LANES_PRIVATE;
}

static bool is_limited(const struct client *client)
{
	return client->uid && client->uid != geteuid();
}

int agent_identify(struct agent *agent, struct client *client)
{
	struct ucred peer = { .uid = (uid_t)-1, .gid = (gid_t)-1 };
	socklen_t length = sizeof(peer);
	unsigned count = 0;

	if (getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return -errno;
	client->pid = (uint32_t)peer.pid;
	client->uid = peer.uid;
	client->user = agent_keeps_apart(agent) ? peer.uid + 1 : VG_USER_ANY;
	if (agent_keeps_apart(agent) && client->user == VG_USER_ANY)
		client->user = VG_USER_UNKNOWN;
	client->direct = !agent_keeps_apart(agent) || is_member(client->fd, agent->direct_group, &peer);
	for (unsigned i = 0; i < AGENT_CLIENTS; i++)
		count += agent->client[i].state != CLIENT_NONE && agent->client[i].uid == client->uid;
	return is_limited(client) && count > USER_CLIENTS ? -EUSERS : 0;
}

bool agent_user_has_room(struct agent *agent, const struct client *client, const struct link *link, unsigned *most)
{
	unsigned all = link->ring ? ((const struct agent_ring *)link)->layout.lane_count : VG_SERIAL_LANES;
	unsigned count = 0;

	*most = agent->user_lanes ? agent->user_lanes : all - all / 4;
	for (unsigned i = 0; i < AGENT_CLIENTS; i++) {
		const struct client *other = &agent->client[i];

		count += other->state >= CLIENT_OPENING && other->link == link && other->uid == client->uid;
	}
	return !is_limited(client) || count < *most;
}
