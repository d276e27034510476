/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor of shared memory or of a pool holds. */
#ifndef VGPUMGR_SHIM_SHAREABLE_H
#define VGPUMGR_SHIM_SHAREABLE_H

#include <cuda_rules.h>

#include "shim.h"

enum shim_shareable_kind { SHIM_SHAREABLE_PHYSICAL = 1, SHIM_SHAREABLE_POOL };
struct shim_shareable {
	char magic[16];
	uint8_t device[16], maker[16]; /* a UUID; the process */
	uint64_t id;                   /* the maker's handle */
	uint32_t kind, zero;
	uint8_t token[64];
};

CUresult shim_shareable_make(enum shim_shareable_kind kind, CUdevice device, uint64_t id, const uint8_t *token, size_t length, int *out);
/* Which device of this process it is of, and whether this process has made it. Of none: CUDA_ERROR_NOT_SUPPORTED. */
CUresult shim_shareable_read(void *descriptor, enum shim_shareable_kind kind, struct shim_shareable *out, CUdevice *device, bool *own);
/* A token that means nothing, as the calls that import document it. */
CUresult shim_shareable_result(CUresult r);

#endif
