/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels take device time, where the machine has a clock: see state/engine.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_sim.h"

/* `sim start --clock` has written the file; VGPUMGR_SIM_CLOCK=1 does the same for one program. */
static bool ask(void)
{
	const char *wish = getenv("VGPUMGR_SIM_CLOCK"), *directory = getenv("VGPUMGR_SIM");
	char path[4096];

	if (wish)
		return !strcmp(wish, "1");
	return directory && snprintf(path, sizeof(path), "%s/clock", directory) < (int)sizeof(path) && !access(path, F_OK);
}

static bool is_on(void)
{
	static _Atomic int known; /* 1: no, 2: yes */

	if (!known)
		known = 1 + ask();
	return known == 2;
}

static void pass(void *device, uint64_t ns)
{
	sim_engine_pass(drv.sim, ((struct device *)device)->slot, ns);
}

void clock_begin(struct device *dev, struct ptx_launch *launch)
{
	if (!is_on())
		return;
	launch->pass = pass;
	launch->pass_argument = dev;
	sim_engine_begin(drv.sim, dev->slot);
}

void clock_end(struct device *dev, const struct ptx_launch *launch)
{
	if (launch->pass)
		sim_engine_end(drv.sim, dev->slot);
}
