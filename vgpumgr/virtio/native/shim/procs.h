/* SPDX-License-Identifier: Apache-2.0 */
/* The table that the build makes from cudaTypedefs.h and cuda.h. */
#ifndef VGPUMGR_PROCS_H
#define VGPUMGR_PROCS_H

#include <cuda_rules.h>

/* Sorted by name, then plain before per-thread, then by version. */
extern const struct cuda_proc shim_procs[];
extern const size_t shim_procs_count;

/* cudaProfiler.h has them, which not every distribution of the headers holds. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#endif
