/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional handles of graphs, and the values that kernels set. */
#ifndef VGPUMGR_CUDA_CONDITION_H
#define VGPUMGR_CUDA_CONDITION_H

#include "cuda_sim.h"

struct condition {
	struct condition *next;     /* of all; under a lock of its own */
	struct condition *of_graph; /* the next one of the same graph */
	uint64_t handle;
	unsigned refs;              /* its graph, each node, each launch */
	CUcontext context;
	unsigned int initial, flags;
	unsigned int value;         /* read and written by kernels and streams, atomically */
	bool used;                  /* by the program's node */
	const void *exec;           /* the executable graph that it is of */
};

/* What a conditional node is, beside its place. */
struct graph_conditional {
	struct condition *condition; /* held */
	CUgraphConditionalNodeType kind;
	unsigned int size;
	bool asks;                   /* the program's own node, not its likeness in an executable graph */
	struct graph **bodies;
};

/* With drv.lock held. The new one is the list's first; NULL: out of memory. */
struct condition *condition_new(struct condition **list, CUcontext context, unsigned int initial, unsigned int flags);
void condition_unref(struct condition *c);
/* A kernel of that context sets a handle; false: it has none like this. Without the lock. */
bool condition_set(void *context, uint64_t handle, uint32_t value);

#endif
