/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays are device memory row by row; objects are what kernels name textures and surfaces by. */
#ifndef VGPUMGR_CUDA_ARRAY_H
#define VGPUMGR_CUDA_ARRAY_H

#include "captures.h"

struct array {
	struct array *next; /* in the context's list; not the levels of others */
	struct context *ctx;
	struct cuda_array shape;
	uint64_t addr;
	size_t pitch, slice;
	struct array *whole; /* of a level */
	/* of a mipmapped array, which has no memory of its own */
	unsigned n_levels;
	struct array **levels;
};

/* array.c; all with drv.lock held */
struct array *array_find(CUarray handle);
struct array *mipmap_find(CUmipmappedArray handle);

#endif
