/* SPDX-License-Identifier: Apache-2.0 */
/* Child graphs that programs know. */
#ifndef VGPUMGR_SHIM_GRAPH_CHILDREN_H
#define VGPUMGR_SHIM_GRAPH_CHILDREN_H

#include "graph_records.h"

/* Its child graphs have gone with it, or with one of its nodes. */
void shim_children_end(struct shim_object *graph, uint32_t node);

#endif
