/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in memory as a graph's node has them. */
#ifndef VGPUMGR_CUDA_GRAPH_MEMORY_H
#define VGPUMGR_CUDA_GRAPH_MEMORY_H

#include <cuda_rules.h>

/* Operations as cuda_write_memory_operation() writes them; one allocation. */
struct graph_memory {
	CUcontext context;
	unsigned int count;
	CUstreamBatchMemOpParams *list;
};

/* The same with it: a list of its own; false: out of memory. */
bool memory_own(struct graph_memory *m);
/* Whether an executable graph's node may become that: addresses, values and what is waited for may be others. */
bool memory_may_become(const struct graph_memory *have, const struct graph_memory *want);

#endif
