/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the VM's devices a process gets. As with MIG on a host, one process uses one slice: the first that
 * CUDA_VISIBLE_DEVICES names, by its index or by the beginning of its UUID ("MIG-..."), or else the first of all.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* The devices are asked one after the other who they are. */
static int open_named(const struct vg_interface *interface, const char *name, size_t length, struct vg_conn **conn)
{
	uint32_t devices = 1;

	for (uint32_t i = 0; i < devices; i++) {
		int error = vg_conn_open_device(interface, VGPUMGR_VERSION, i, conn);

		if (error)
			return error;
		if (!strncmp(vg_conn_device_name(*conn), name, length))
			return 0;
		devices = vg_conn_devices(*conn);
		vg_conn_close(*conn);
		*conn = NULL;
	}
	vg_conn_say("CUDA_VISIBLE_DEVICES names %.*s, and none of this VM's devices is called so", (int)length, name);
	return -ENOTCONN;
}

int shim_open_visible(const struct vg_interface *interface, struct vg_conn **conn)
{
	const char *wish = getenv("CUDA_VISIBLE_DEVICES");
	size_t length;
	char *end;
	long index;

	if (!wish)
		return vg_conn_open_device(interface, VGPUMGR_VERSION, 0, conn);
	while (isspace((unsigned char)*wish))
		wish++;
	length = strcspn(wish, ", \t");
	if (!strncmp(wish, "MIG-", 4) || !strncmp(wish, "GPU-", 4))
		return open_named(interface, wish, length, conn);
	index = strtol(wish, &end, 10);
	if (end != wish && end == wish + length && index >= 0 && index < INT32_MAX)
		return vg_conn_open_device(interface, VGPUMGR_VERSION, (uint32_t)index, conn);
	vg_conn_say("CUDA_VISIBLE_DEVICES=%.80s lets this process see no device", wish);
	return -ENOTCONN;
}
