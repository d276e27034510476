/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host rows and device rows, cut to what one frame can carry. */
#ifndef VGPUMGR_COPY_H
#define VGPUMGR_COPY_H

#include "shim.h"

/* `rows` rows of `width` bytes; a pitch is the distance between rows, and is ignored for a single one. */
struct shim_rect {
	uint64_t device, device_pitch;
	uint8_t *host;
	size_t host_pitch;
	size_t width, rows;
};

CUresult shim_copy_to_device(uint64_t context, uint64_t stream, const struct shim_rect *rect);
CUresult shim_copy_to_host(uint64_t context, uint64_t stream, const struct shim_rect *rect);
/* The context that owns the device memory there; 0: none of ours. */
uint64_t shim_owner(uint64_t address);

#endif
