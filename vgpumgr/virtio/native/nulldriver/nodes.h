/* SPDX-License-Identifier: Apache-2.0 */
/* What a node is: its mark. The first of the words that it keeps is the function, the address or the event that it has. */
#ifndef VGPUMGR_NULL_NODES_H
#define VGPUMGR_NULL_NODES_H

#include "books.h"

enum { IS_EMPTY, IS_COPY, IS_HOST, IS_GRAPH, IS_KERNEL, IS_FILL, IS_EVENT, IS_WAIT, IS_DEVICE_COPY };

CUgraphNodeType null_node_type(CUgraphNode node);

#endif
