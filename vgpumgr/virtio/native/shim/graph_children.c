/* SPDX-License-Identifier: Apache-2.0 */
/* The end of child graphs and bodies. */
#include "graph_children.h"
#include "hosts.h"

void shim_children_end(struct shim_object *graph, uint32_t node)
{
	struct shim_object *o;
	uint64_t child;

	while ((child = shim_child_take(graph, node))) {
		o = shim_object_get(SHIM_GRAPH, child);
		if (!o || !shim_object_retire(o, child))
			continue;
		shim_children_end(o, SHIM_EVERY_NODE);
		shim_hosts_drop(o);
		shim_object_recycle(SHIM_GRAPH, child);
	}
}
