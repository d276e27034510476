/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of conditional nodes. */
#ifndef VGPUMGR_CUDA_GRAPH_CONDITIONS_H
#define VGPUMGR_CUDA_GRAPH_CONDITIONS_H

#include "graph.h"

/* Without drv.lock: puts into the stream what sets the handles of an executable graph for a launch, if there are any. */
CUresult conditions_begin(const struct graph *g, CUstream stream);
/* Puts into the stream what runs the node; `launch` puts all nodes of a graph into one, as graph_launch_nodes() does. */
CUresult conditional_launch(const struct graph_node *node, CUresult (*launch)(struct graph *, CUstream), CUstream stream);

#endif
