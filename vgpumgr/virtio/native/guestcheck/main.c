/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-guest-check: options, the agent and the GPUs. It asks for a lane of each GPU as a CUDA program does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../transport/util.h"
#include "../transport/wire.h"
#include "check.h"

enum { EXIT_FOUND = 3 };

static const char usage[] =
	"usage: vgpumgr-guest-check [--help | --version]\n"
	"Checks whether CUDA programs of this VM can use its forwarded GPUs, and says what to do if not. Changes nothing.\n"
	"Exit code: 0 if no check finds a problem, 3 if one does, 2 for wrong options. For tests: [--root DIRECTORY]\n";

static const char *find_socket(void)
{
	const char *path = getenv("VGPUMGR_AGENT");

	return path && *path ? path : VG_AGENT_SOCKET;
}

static bool check_agent(struct check *check)
{
	const char *path = find_socket();
	int fd = vg_connect(path);

	if (fd >= 0) {
		close(fd);
		check_report(check, "agent", CHECK_OK, NULL, "answers at %s", path);
	} else if (fd == -EACCES || fd == -EPERM) {
		check_report(check, "agent", CHECK_PROBLEM, "join the group of the socket, which the agent's --group names; or as root",
			     "user %u may not connect to %s", (unsigned)geteuid(), path);
	} else {
		check_report(check, "agent", CHECK_PROBLEM, "as root: systemctl enable --now vgpumgr-guestd; journalctl -u vgpumgr-guestd",
			     "vgpumgr-guestd does not run: %s: %s", path, strerror(-fd));
	}
	return fd >= 0;
}

#define UPDATE "install the guest package of the host's version (on the host: vgpumgr virtio guest-package)"

/* Why there is no lane, and what to do. */
static void report_refusal(struct check *check, const char *name, int error)
{
	const char *hint = "on the host: vgpumgr virtio show VM; vgpumgr status";

	if (error == -EPROTO)
		hint = UPDATE;
	else if (error == -EUSERS || error == -EBUSY || error == -EAGAIN)
		hint = "end programs of this VM that use the GPU, then try again";
	check_report(check, name, CHECK_PROBLEM, hint, "no lane: %s", vg_conn_error());
}

/* Host and guest package may be of different versions: what they do not have alike is refused, all else works. */
static void report_gpu(struct check *check, const char *name, const struct vg_conn *conn)
{
	uint32_t refused = vg_conn_refused(conn);

	if (refused)
		check_report(check, name, CHECK_WARNING, UPDATE, "%s: the host refuses %u of the %u operations of version "
			     VGPUMGR_VERSION, vg_conn_device_name(conn), refused, check_interface->count);
	else
		check_report(check, name, CHECK_OK, NULL, "%s: the host answers version " VGPUMGR_VERSION,
			     vg_conn_device_name(conn));
}

static void check_gpus(struct check *check)
{
	uint32_t count = 1;

	for (uint32_t i = 0; i < count; i++) {
		struct vg_conn *conn = NULL;
		char name[16];
		int error = vg_conn_open_device(check_interface, VGPUMGR_VERSION, i, &conn);

		snprintf(name, sizeof(name), "gpu %u", i);
		if (error) {
			report_refusal(check, name, error);
			continue;
		}
		count = vg_conn_devices(conn);
		report_gpu(check, name, conn);
		vg_conn_close(conn);
	}
}

static int read_options(struct check *check, int count, char **words)
{
	if (count == 3 && !strcmp(words[1], "--root")) {
		check->root = words[2];
		return -1;
	}
	if (count == 2 && !strcmp(words[1], "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	if (count == 2 && !strcmp(words[1], "--version")) {
		puts("vgpumgr-guest-check " VGPUMGR_VERSION);
		return 0;
	}
	if (count == 1)
		return -1;
	fputs(usage, stderr);
	return 2;
}

int main(int count, char **words)
{
	struct check check = { .root = "" };
	int code = read_options(&check, count, words);

	if (code >= 0)
		return code;
	check_channel(&check);
	if (check_agent(&check))
		check_gpus(&check);
	else
		check_report(&check, "gpu", CHECK_SKIPPED, NULL, "needs the agent");
	check_libraries(&check);
	check_loader(&check);
	check_environment(&check);
	check_wheels(&check);
	check_managed_memory(&check);
	printf("%u %s, %u %s\n", check.problems, check.problems == 1 ? "problem" : "problems", check.warnings,
	       check.warnings == 1 ? "warning" : "warnings");
	return fflush(stdout) || ferror(stdout) ? 1 : check.problems ? EXIT_FOUND : 0;
}
