/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside of graphs: of conditional nodes' bodies and child graphs, at any depth. */
#include "graph_inside.h"

/* The conditional node that a graph is inside of, the innermost one; NULL: it isn't. */
static const struct graph_node *around(const struct graph *g)
{
	const struct graph_node *n = g->parent;

	while (n && n->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
		n = n->graph->parent;
	return n;
}

static bool is_reached(CUmemorytype type, const void *host)
{
	struct allocation a;

	return type == CU_MEMORYTYPE_HOST ? vm_find((uint64_t)host, &a) && is_host_memory(&a) : type != CU_MEMORYTYPE_ARRAY;
}

static bool has_no_place(const struct graph_node *n)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return !is_reached(n->copy.srcMemoryType, n->copy.srcHost) || !is_reached(n->copy.dstMemoryType, n->copy.dstHost);
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return false;
	default:
		return true;
	}
}

CUresult graph_may_have(const struct graph *g, const struct graph_node *made)
{
	const struct graph_node *conditional = around(g);

	if (!conditional)
		return CUDA_SUCCESS;
	if (has_no_place(made) || (made->type == CU_GRAPH_NODE_TYPE_GRAPH && graph_any_inside(made->child, has_no_place)))
		return CUDA_ERROR_INVALID_VALUE;
	/* all kernels are of the handle's context */
	return made->type == CU_GRAPH_NODE_TYPE_KERNEL && conditional->conditional.condition->context != (CUcontext)context_current() ?
		       CUDA_ERROR_INVALID_VALUE :
		       CUDA_SUCCESS;
}

bool conditions_are_used(const struct graph *g)
{
	const struct graph *inner;

	for (const struct condition *c = g->conditions; c; c = c->of_graph)
		if (!c->used)
			return false;
	for (const struct graph_node *n = g->nodes; n; n = n->next)
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			if (!conditions_are_used(inner))
				return false;
	return true;
}

bool conditions_are_free(const struct graph *g, const void *exec)
{
	const struct graph *inner;

	for (const struct graph_node *n = g->nodes; n; n = n->next) {
		const void *has = n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? n->conditional.condition->exec : NULL;

		if (has && has != exec)
			return false;
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			if (!conditions_are_free(inner, exec))
				return false;
	}
	return true;
}

void conditions_give(struct graph *g, const void *exec)
{
	struct graph *inner;

	for (struct graph_node *n = g->nodes; n; n = n->next) {
		if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			n->conditional.condition->exec = exec;
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			conditions_give(inner, exec);
	}
}
