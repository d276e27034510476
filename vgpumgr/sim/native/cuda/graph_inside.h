/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs with conditional nodes may have. With drv.lock held. */
#ifndef VGPUMGR_CUDA_GRAPH_INSIDE_H
#define VGPUMGR_CUDA_GRAPH_INSIDE_H

#include "graph.h"

/* What may be in the body of a conditional node, as documented; of other graphs: everything. */
CUresult graph_may_have(const struct graph *g, const struct graph_node *made);
/* Whether each handle of a graph, and of those inside, has its node. */
bool conditions_are_used(const struct graph *g);
/* There is one executable graph of a conditional node at a time: `exec`, or none (NULL). */
bool conditions_are_free(const struct graph *g, const void *exec);
void conditions_give(struct graph *g, const void *exec);

#endif
