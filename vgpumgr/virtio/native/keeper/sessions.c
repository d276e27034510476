/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of sessions: the worker gives those of its pid namespace, the host has others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper.h"

/* The number that a process has in the innermost of its pid namespaces (proc(5), NSpid); 0: it has ended. */
static uint32_t read_inner(int pid)
{
	char path[64], line[256];
	uint32_t inner = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "re");
	if (!status)
		return 0;
	while (fgets(line, sizeof(line), status)) {
		const char *last;

		if (strncmp(line, "NSpid:", 6))
			continue;
		last = strrchr(line, '\t');
		inner = last ? (uint32_t)strtoul(last + 1, NULL, 10) : 0;
		break;
	}
	fclose(status);
	return inner;
}

uint32_t keeper_find_session(const struct keeper *keeper, uint32_t inner)
{
	char path[64];
	uint32_t found = 0;
	FILE *children;
	int pid;

	if (!keeper->options.sandbox.on || !inner || !keeper->worker.pid)
		return inner;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", keeper->worker.pid, keeper->worker.pid);
	children = fopen(path, "re");
	while (children && !found && fscanf(children, "%d", &pid) == 1)
		if (read_inner(pid) == inner)
			found = (uint32_t)pid;
	if (children)
		fclose(children);
	return found;
}
