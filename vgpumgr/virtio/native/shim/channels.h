/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that this process sees. Each slice of the VM has a channel of its own, with its own session on the host; a
 * process has one connection for each that it uses. A handle says which it is of by the upper bits of its generation, so
 * that a frame goes where the objects are that it names; what names none goes to the device that its thread works on.
 */
#ifndef VGPUMGR_CHANNELS_H
#define VGPUMGR_CHANNELS_H

#include <codec.h>
#include <cuda.h>
#include <stdbool.h>
#include <transport.h>

enum {
	SHIM_CHANNELS = 16,
	SHIM_CHANNEL_SHIFT = 20,
	SHIM_GENERATION_MAX = (1 << SHIM_CHANNEL_SHIFT) - 1,
};
_Static_assert(SHIM_CHANNELS << SHIM_CHANNEL_SHIFT == VG_HANDLE_GENERATION_MAX + 1, "all that a generation can say");

static inline unsigned shim_channel_of(uint64_t handle)
{
	return vg_handle_generation(handle) >> SHIM_CHANNEL_SHIFT;
}

/* The one of the device that this thread works on: as below, else of its current context, else the first. */
unsigned shim_channel(void);
/* The context is this thread's current one from now on; 0: none is. */
void shim_channel_note(uint64_t context);
/* The one of the handle, if there is a handle. */
static inline unsigned shim_channel_by(uint64_t handle)
{
	return handle ? shim_channel_of(handle) : shim_channel();
}

/* The channel's connection, opened if it has not been yet; NULL: why not. */
struct vg_conn *shim_conn(unsigned channel, CUresult *why);
/* The same if it is open. */
struct vg_conn *shim_open_conn(unsigned channel);
/* Connects the first channel that answers, if none is. */
CUresult shim_connect(void);
/* How many this process sees; 0: it is not connected. */
unsigned shim_channels(void);

/* While it lasts, this thread works on a device: frames that name no object go there. */
struct shim_turn {
	unsigned before;
	uint32_t ordinal;       /* what the device's session calls it */
};
struct shim_turn shim_turn_to(CUdevice device);
struct shim_turn shim_turn_to_channel(unsigned channel);
void shim_turn_end(struct shim_turn *turn);
/* Whether each device has a channel of its own. */
void shim_turns_by_device(bool is);
#define SHIM_TURN(name, to) __attribute__((cleanup(shim_turn_end), unused)) struct shim_turn name = (to)

/* ---- visible.c: CUDA_VISIBLE_DEVICES */
struct shim_visible {
	unsigned count;
	uint32_t device[SHIM_CHANNELS];           /* the VM's, in the process's order */
	struct vg_conn *conn[SHIM_CHANNELS];      /* of the first that answered */
};
/* Which devices the variable lets this process see, and a connection to one of them. */
int shim_open_visible(const struct vg_interface *interface, struct shim_visible *visible);

#endif
