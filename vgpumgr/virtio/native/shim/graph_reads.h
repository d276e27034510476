/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes are. */
#ifndef VGPUMGR_SHIM_GRAPH_READS_H
#define VGPUMGR_SHIM_GRAPH_READS_H

#include "graph_handles.h"
#include "hosts.h"

/* A copy is one, whatever stands for it at the worker. */
CUresult shim_node_type(const struct shim_node *node, uint32_t *type);
/* Reads one of that type; `wanted` NULL: there is nowhere to put it. `host`: what it is of the program's. */
CUresult shim_node_read(CUgraphNode hNode, CUgraphNodeType type, const void *wanted, struct shim_node *node,
			struct vg_graph_node_read_reply *out, struct shim_host *host);

#endif
