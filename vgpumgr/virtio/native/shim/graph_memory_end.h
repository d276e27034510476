/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of graphs that no graph has any more. */
#ifndef VGPUMGR_SHIM_GRAPH_MEMORY_END_H
#define VGPUMGR_SHIM_GRAPH_MEMORY_END_H

#include <graph_block.h>

/* Gives back the memory of those that graph_blocks_drop() has returned. The worker's driver waits for launches that use it. */
void shim_graph_memory_end(struct graph_block *ended);

#endif
