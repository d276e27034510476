/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, and nodes by their number below a graph. A node's handle is made of both, so nothing is kept for it here. */
#ifndef VGPUMGR_SHIM_GRAPH_HANDLES_H
#define VGPUMGR_SHIM_GRAPH_HANDLES_H

#include "shim.h"

struct shim_node {
	uint64_t graph;
	uint32_t number;
};

CUgraphNode shim_node_handle(uint64_t graph, uint32_t number);
/* The graph is there; whether the node is, the worker knows. */
CUresult shim_node(CUgraphNode handle, struct shim_node *node);
CUresult shim_graph(CUgraph handle, uint64_t *id);
CUresult shim_graph_exec(CUgraphExec handle, uint64_t *id);
/* Whether nodes of it allocate or free memory. */
bool shim_graph_has_memory(uint64_t graph);
/* The graph that has what one needs of this process: itself, or the one that it is inside of. NULL: it is gone. */
struct shim_object *shim_graph_all(uint64_t graph);
/* Whether it is inside of a conditional node, or of what is. */
bool shim_graph_is_inside(uint64_t graph);
/* Takes a node back that was just added, also in a graph from which nodes may not be destroyed. */
CUresult shim_node_undo(CUgraphNode node);

#endif
