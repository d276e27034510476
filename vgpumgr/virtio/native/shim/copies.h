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
	bool present;            /* the host's pages, see struct shim_bulk */
};

/* What the bulk of one frame holds. */
size_t shim_piece(unsigned channel);
CUresult shim_copy_to_device(uint64_t context, uint64_t stream, const struct shim_rect *rect);
CUresult shim_copy_to_host(uint64_t context, uint64_t stream, const struct shim_rect *rect);
CUresult shim_capture_copy(uint64_t context, uint64_t stream, const struct cuda_copy *copy, bool to_device, bool from_device,
			   bool *done);

/* ---- copy_across.c: copies in which memory of another context than the stream's takes part */
struct shim_across {
	uint64_t to, to_pitch, from, from_pitch;
	size_t width, rows;
	bool to_device, from_device;
};
/* Whether that is memory of another context, or a mapping of another device. */
bool shim_is_elsewhere(uint64_t context, uint64_t address);
/* It is done, also where the stream goes on, when the call returns. */
CUresult shim_copy_across(uint64_t context, uint64_t stream, const struct shim_across *copy);

/* copy_array.c: one side at least is an array. */
CUresult shim_copy_array(const struct cuda_copy *copy, CUstream stream);

#endif
