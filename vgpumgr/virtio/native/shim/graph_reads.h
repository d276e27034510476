/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes are. */
#ifndef VGPUMGR_SHIM_GRAPH_READS_H
#define VGPUMGR_SHIM_GRAPH_READS_H

#include "graph_handles.h"

/* A copy is one, whatever stands for it at the worker. */
CUresult shim_node_type(const struct shim_node *node, uint32_t *type);

#endif
