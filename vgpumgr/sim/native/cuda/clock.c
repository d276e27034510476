/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels take device time, where the machine has a clock: see state/engine.c. */
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"

/* VGPUMGR_SIM_CLOCK=1 does for one program what `sim start --clock` does for all of the machine's. */
static bool is_on(void)
{
	static _Atomic int wished; /* 1: no, 2: yes */
	const char *wish;

	if (!wished) {
		wish = getenv("VGPUMGR_SIM_CLOCK");
		wished = 1 + (wish && !strcmp(wish, "1"));
	}
	return wished == 2 || sim_clock(drv.sim);
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
