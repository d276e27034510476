/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory: one address for the program and for its kernels, and a copy on each side. */
#ifndef VGPUMGR_SHIM_MANAGED_H
#define VGPUMGR_SHIM_MANAGED_H

#include "shim.h"

/* Before kernels start: they may use all of it. */
CUresult shim_managed_launch(void);
/* Fills in where range->bytes of it are, and remembers them. CUDA_ERROR_NOT_SUPPORTED: not in this process. */
CUresult shim_managed_make(struct shim_range *range);
/* Of a range that is forgotten already. */
CUresult shim_managed_free(const struct shim_range *range);
#endif
