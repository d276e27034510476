/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver writes to this process's standard output and error, for the guest process. */
#ifndef VGPUMGR_OUTPUT_H
#define VGPUMGR_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vg_lane;

/* Before the driver is loaded: standard output becomes a pipe; `errors` is the end of standard error's, if it is open. */
void wk_output_open(int errors);
/* When it has been loaded: what it has said so far is no guest's. `said` gets that of standard error; its length. */
size_t wk_output_begin(char *said, size_t size);
/* From now on answers on this lane say whether output waits. */
void wk_output_serve(struct vg_lane *lane);
/* Kernels may run from now on. */
void wk_output_expect(void);
/* Takes all that has been written so far; for calls that have waited for the device, before they are answered. */
void wk_output_settle(void);

struct wk_output {
	uint8_t *text[2];        /* room for so many bytes each */
	size_t room;
	size_t length[2];
	uint64_t lost;           /* bytes dropped since this was last asked */
};
/* Takes the oldest output; whether there is more. */
bool wk_output_take(struct wk_output *to);

#endif
