/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vg_stubs.h"

bool shim_traces;

__attribute__((constructor)) static void read_variable(void)
{
	const char *wanted = secure_getenv("VGPUMGR_TRACE");

	if (!wanted || !*wanted)
		return;
	shim_traces = !strcmp(wanted, "waits");
	if (!shim_traces)
		dprintf(STDERR_FILENO, "vgpumgr: VGPUMGR_TRACE is \"%.40s\": it can be waits\n", wanted);
}

static _Thread_local const char *part_of;

void shim_trace_of(const char *name)
{
	part_of = name;
}

uint64_t shim_trace_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void shim_trace_wait(uint32_t op, uint64_t since)
{
	static _Atomic uint64_t count;
	uint64_t ns = shim_trace_now() - since, number = ++count;
	int saved = errno;

	dprintf(STDERR_FILENO, "vgpumgr: wait %llu: %s%s%s, %llu.%03llu ms\n", (unsigned long long)number, vg_sent_name(op),
		part_of ? " of " : "", part_of ? part_of : "", (unsigned long long)(ns / 1000000), (unsigned long long)(ns / 1000 % 1000));
	errno = saved;
}
