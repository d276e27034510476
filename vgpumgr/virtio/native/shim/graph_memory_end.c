/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory_end.h"

#include <stdlib.h>

#include "shim.h"

static void give(const struct graph_block *b)
{
	struct vg_memory_free_request in = { .context = b->context, .address = b->address };
	struct shim_range range;

	if (b->lost || !shim_range_find(SHIM_RANGE_DEVICE, b->address, &range) || range.context != b->context)
		return; /* its context has ended, and another may have the address */
	if (shim_range_remove(SHIM_RANGE_DEVICE, &range))
		vg_send_memory_free(&in);
}

void shim_graph_memory_end(struct graph_block *ended)
{
	struct graph_block *next;

	for (; ended; ended = next) {
		next = ended->next;
		give(ended);
		free(ended);
	}
}
