/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of graphs share. */
#ifndef VGPUMGR_SHIM_GRAPH_H
#define VGPUMGR_SHIM_GRAPH_H

#include "graph_handles.h"
#include "shim.h"

/* A list of nodes: of a graph, or of one that a stream captures, which has no graph yet. */
struct shim_list {
	uint64_t graph;
	uint64_t context, stream; /* of the capture; 0: it is a graph's */
	uint32_t what, node;
	CUgraphNode *a, *b;       /* where they go; NULL: they are counted only */
	CUgraphEdgeData *data;
};
/* Puts no more than `room`. How many there are is in *total. */
CUresult shim_list_read(const struct shim_list *list, size_t room, size_t *total);
/* Edges are added or removed in as many frames as they need. */
CUresult shim_edges(uint64_t context, uint64_t graph, const CUgraphNode *from, const CUgraphNode *to, size_t count,
		    bool removed);

/* launch.c: a kernel's function and its parameters, checked as for a launch; `room` is for them. */
CUresult shim_pack_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra, uint8_t *room,
			  size_t most, uint64_t *id, struct vg_bytes *parameters);

/* launch.c: the clusters that a launch has. */
CUresult shim_check_clusters(const CUlaunchConfig *c, const struct shim_object *f, struct cuda_launch_options *options);

#endif
