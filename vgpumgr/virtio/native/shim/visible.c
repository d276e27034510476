/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the VM's devices a process sees: all, or those that CUDA_VISIBLE_DEVICES lists, in its order, each by its index
 * or by the beginning of its UUID ("MIG-..."). As documented, the list ends where it names something that there is not.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channels.h"

/* What has been asked for, and what came of it. */
struct search {
	const struct vg_interface *interface;
	struct shim_visible *visible;
	struct vg_conn *conn[SHIM_CHANNELS];     /* by the VM's index */
	bool tried[SHIM_CHANNELS];
	bool any;
	uint32_t devices;                        /* of the VM; 0: not known */
	int error;                               /* the first */
	char why[256];
};

static const char separators[] = ", \t";

static struct vg_conn *look(struct search *s, uint32_t device)
{
	int error;

	if (device >= SHIM_CHANNELS || s->tried[device])
		return device < SHIM_CHANNELS ? s->conn[device] : NULL;
	s->tried[device] = true;
	error = vg_conn_open_device(s->interface, VGPUMGR_VERSION, device, &s->conn[device]);
	if (error && !s->error) {
		s->error = error;
		snprintf(s->why, sizeof(s->why), "%s", vg_conn_error());
	}
	s->any = s->any || !error;
	if (vg_conn_devices_told())
		s->devices = vg_conn_devices_told();
	return error ? NULL : s->conn[device];
}

/* The devices are asked one after the other who they are; -1: none is called so. */
static int64_t find_named(struct search *s, const char *name, size_t length)
{
	for (uint32_t i = 0; i == 0 || (i < s->devices && i < SHIM_CHANNELS); i++) {
		struct vg_conn *conn = look(s, i);

		if (conn && !strncmp(vg_conn_device_name(conn), name, length))
			return i;
	}
	if (!s->error) {
		s->error = -ENOTCONN;
		snprintf(s->why, sizeof(s->why), "CUDA_VISIBLE_DEVICES names %.*s, and none of this VM's devices is called so",
			 (int)length, name);
	}
	return -1;
}

static int64_t find_device(struct search *s, const char *word, size_t length)
{
	char *end;
	long index;

	if (!strncmp(word, "MIG-", 4) || !strncmp(word, "GPU-", 4))
		return find_named(s, word, length);
	index = strtol(word, &end, 10);
	return end != word && end == word + length && index >= 0 && index < INT32_MAX ? index : -1;
}

/* Adds the device to those that are seen; false: the list ends before it. */
static bool see(struct search *s, int64_t device)
{
	struct shim_visible *v = s->visible;

	if (device < 0 || v->count == SHIM_CHANNELS)
		return false;
	for (unsigned i = 0; i < v->count; i++)
		if (v->device[i] == device)
			return false;
	if (!s->any)
		look(s, device < SHIM_CHANNELS ? (uint32_t)device : 0);
	if (s->devices ? device >= s->devices : !s->any && v->count)
		return false;
	v->device[v->count++] = (uint32_t)device;
	return true;
}

static void see_listed(struct search *s, const char *list)
{
	const char *word = list + strspn(list, separators);

	for (size_t length; *word; word += length, word += strspn(word, separators)) {
		length = strcspn(word, separators);
		if (!see(s, find_device(s, word, length)))
			return;
	}
}

static void see_all(struct search *s)
{
	for (uint32_t i = 0; i == 0 || i < s->devices; i++)
		if (!see(s, i))
			return;
}

/* One connection stays open: that of the first device that the process sees and that has one. */
static bool keep_one(struct search *s)
{
	struct shim_visible *v = s->visible;
	bool kept = false;

	for (unsigned i = 0; i < v->count && !kept; i++) {
		v->conn[i] = look(s, v->device[i]);
		kept = v->conn[i];
		if (kept)
			s->conn[v->device[i]] = NULL;
	}
	for (unsigned i = 0; i < SHIM_CHANNELS; i++)
		vg_conn_close(s->conn[i]);
	return kept;
}

int shim_open_visible(const struct vg_interface *interface, struct shim_visible *visible)
{
	const char *wish = getenv("CUDA_VISIBLE_DEVICES");
	struct search s = { .interface = interface, .visible = visible };

	if (wish)
		see_listed(&s, wish);
	else
		see_all(&s);
	if (keep_one(&s))
		return 0;
	if (s.error)
		vg_conn_say("%s", s.why);
	else
		vg_conn_say("CUDA_VISIBLE_DEVICES=%.80s lets this process see no device", wish ? wish : "");
	return s.error ? s.error : -ENOTCONN;
}
