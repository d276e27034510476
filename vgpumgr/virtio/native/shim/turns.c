/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a thread works on. */
#include "channels.h"

#include <stdatomic.h>

static _Atomic bool by_device;   /* each device has a channel; else one channel has them all */
static __thread unsigned works_on; /* 0: nothing else than the current context's, else the channel and 1 */
static __thread unsigned current;  /* of the current context */

void shim_turns_by_device(bool is)
{
	atomic_store(&by_device, is);
}

void shim_channel_note(uint64_t context)
{
	current = shim_channel_of(context);
}

unsigned shim_channel(void)
{
	return works_on ? works_on - 1 : current;
}

struct shim_turn shim_turn_to_channel(unsigned channel)
{
	struct shim_turn turn = { works_on, 0 };

	works_on = channel + 1;
	return turn;
}

struct shim_turn shim_turn_to(CUdevice device)
{
	struct shim_turn turn;

	if (atomic_load_explicit(&by_device, memory_order_relaxed))
		return shim_turn_to_channel((unsigned)device % SHIM_CHANNELS);
	turn = shim_turn_to_channel(0);
	turn.ordinal = (uint32_t)device;
	return turn;
}

void shim_turn_end(struct shim_turn *turn)
{
	works_on = turn->before;
}
