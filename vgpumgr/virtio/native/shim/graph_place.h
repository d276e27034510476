/* SPDX-License-Identifier: Apache-2.0 */
/* Where what a node does goes: into a new one, into one of a graph, or into one of an executable graph. */
#ifndef VGPUMGR_SHIM_GRAPH_PLACE_H
#define VGPUMGR_SHIM_GRAPH_PLACE_H

#include "graph.h"

enum { SHIM_ADD, SHIM_SET, SHIM_SET_EXEC };
enum { SHIM_PLACE_AT_ONCE = 256 };

/* Where a node is to be: the first fields of the requests. */
struct shim_place {
	uint64_t context, graph, exec;
	uint32_t how, number;
	const CUgraphNode *more; /* dependencies that one frame does not hold */
	size_t count;
	uint32_t dependencies[SHIM_PLACE_AT_ONCE];
	struct vg_bytes sent;
};

CUresult shim_place_add(struct shim_place *p, CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count);
/* `exec` NULL: of the graph itself. */
CUresult shim_place_set(struct shim_place *p, uint32_t how, CUgraphExec exec, CUgraphNode hNode);
/* The worker's answer. A new node waits for the dependencies that are left, too. */
CUresult shim_place_finish(const struct shim_place *p, CUresult r, uint32_t number, CUgraphNode *out);

#define SHIM_PLACE(p)                                                                                       \
	.context = (p)->context, .graph = (p)->graph, .exec = (p)->exec, .how = (p)->how, .node = (p)->number, \
	.dependencies = (p)->sent

#endif
