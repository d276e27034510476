/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-worker: the channel's server, and each of its sessions, which alone load the driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "mathematics.h"
#include "output.h"
#include "vg_interface.h"
#include "vg_worker.h"

static int open_session(struct vg_lane *lane, const struct vg_peer *peer, void **session)
{
	(void)peer;
	*session = wk_session_create(lane);
	return *session ? 0 : -1;
}

static void close_session(void *session)
{
	wk_session_destroy(session);
}

/* Worker arguments: --cuda PATH of the driver; else $VGPUMGR_CUDA; else the one that the loader finds. */
static const char *driver_path(int argc, char **argv)
{
	const char *path = getenv("VGPUMGR_CUDA");

	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--cuda"))
			path = argv[i + 1];
	return path && *path ? path : "libcuda.so.1";
}

static int start(int argc, char **argv, char *message, size_t size)
{
	int error;

	wk_output_open(VG_ERRORS_FD);
	wk_math_read(argc, argv);
	error = wk_driver_load(driver_path(argc, argv), message, size);
	if (error)
		return error;
	error = vg_lock_down(argc, argv);
	if (error)
		snprintf(message, size, "sandbox: cannot lock down: %s", strerror(-error));
	if (error)
		return error;
	wk_output_begin(message, size);
	wk_rehearse();
	return 0;
}

static const char *name_of(uint32_t op)
{
	const struct wk_operation *operation = wk_operation(op);

	return operation ? operation->name : NULL;
}

int main(int argc, char **argv)
{
	static const struct vg_session_ops ops = {
		.start = start,
		.open = open_session,
		.call = wk_call,
		.close = close_session,
		.name = name_of,
	};

	if (vg_hide(argc, argv))
		return 1;
	return vg_worker_serve(argc, argv, &vg_interface, VGPUMGR_VERSION, &ops);
}
