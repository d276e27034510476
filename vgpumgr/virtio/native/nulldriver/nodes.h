/* SPDX-License-Identifier: Apache-2.0 */
/* What a node is: its mark. The first of the words that it keeps is the function, the address or the event that it has. */
#ifndef VGPUMGR_NULL_NODES_H
#define VGPUMGR_NULL_NODES_H

#include "books.h"

enum { IS_EMPTY, IS_COPY, IS_HOST, IS_GRAPH, IS_KERNEL, IS_FILL, IS_EVENT, IS_WAIT, IS_DEVICE_COPY, IS_MEMORY, IS_CONDITIONAL };
enum { DECIDES = 1 }; /* the mark of a graph that has a conditional node */

CUgraphNodeType null_node_type(CUgraphNode node);
/* Adds one that has something to be read. */
CUresult null_add_marked(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, int mark, void *kept);
CUresult null_change(CUgraphExec exec, CUgraphNode node);
/* What the worker lets through is right. */
void null_check_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags);

#endif
