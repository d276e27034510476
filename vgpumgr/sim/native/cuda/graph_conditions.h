/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes: graphs inside of a node, of which a value that kernels set says what is run, and how often. */
#ifndef VGPUMGR_CUDA_GRAPH_CONDITIONS_H
#define VGPUMGR_CUDA_GRAPH_CONDITIONS_H

#include "cuda_sim.h"

struct graph;
struct graph_node;
struct condition;

struct graph_conditional {
	struct condition *condition; /* held */
	CUgraphConditionalNodeType kind;
	unsigned int size;
	bool asks;                   /* the program's own node, not its likeness in an executable graph */
	struct graph **bodies;
};

/* All below with drv.lock held, but where it says so. */

/* Of a node that is to be cleared; and the same of all handles that a graph has. */
void conditional_clear(struct graph_node *node);
void conditions_drop(struct graph *g);
/* A likeness of the node has bodies of its own; false: out of memory, and it has nothing. */
bool conditional_copy(struct graph_node *to, const struct graph_node *from);
/* Whether any node of the graph, or inside of it, is a conditional one. */
bool graph_decides(const struct graph *g);
/* Whether a stream captures into it or into a graph inside of it. */
bool graph_is_captured(const struct graph *g);
/* What may be in the body of a conditional node, as documented; of other graphs: everything. */
CUresult graph_may_have(const struct graph *g, const struct graph_node *made);
/* Whether each handle of a graph, and of those inside, has its node. */
bool conditions_are_used(const struct graph *g);
/* There is one executable graph of a conditional node at a time: `exec`, or none (NULL). */
bool conditions_are_free(const struct graph *g, const void *exec);
void conditions_give(struct graph *g, const void *exec);

/* Without the lock: puts into the stream what sets the handles of an executable graph for a launch, if there are any. */
CUresult conditions_begin(const struct graph *g, CUstream stream);
/* Without the lock: puts into the stream what runs the node. */
CUresult conditional_launch(const struct graph_node *node, CUstream stream);
/* A kernel of that context sets a handle; false: it has none like this. Without the lock. */
bool condition_set(void *context, uint64_t handle, uint32_t value);

#endif
