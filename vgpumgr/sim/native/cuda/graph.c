/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as a program builds them: nodes, edges, copies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

unsigned int graph_next_number(void)
{
	static unsigned int last;

	return ++last;
}

struct graph *graph_new(bool hidden)
{
	struct graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->last = &g->nodes;
	g->hidden = hidden;
	g->number = hidden ? 0 : graph_next_number();
	if (!hidden && handle_add(g, HANDLE_GRAPH)) {
		free(g);
		return NULL;
	}
	return g;
}

static void conditional_clear(struct graph_node *n)
{
	struct graph_conditional *c = &n->conditional;

	for (unsigned int i = 0; c->bodies && i < c->size; i++)
		if (c->bodies[i])
			graph_free(c->bodies[i]);
	free(c->bodies);
	c->bodies = NULL;
	if (c->condition && c->asks)
		c->condition->used = false;
	condition_unref(c->condition);
	c->condition = NULL;
}

void node_clear(struct graph_node *n)
{
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL)
		free(n->kernel.params);
	else if (n->type == CU_GRAPH_NODE_TYPE_GRAPH && n->child)
		graph_free(n->child);
	else if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		conditional_clear(n);
	else if (n->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		free(n->memory.list);
}

static void node_free(struct graph_node *n)
{
	if (!n->graph->hidden)
		handle_remove(n);
	node_clear(n);
	free(n->deps);
	free(n);
}

struct graph_block *graph_memory_ended;

void graph_memory_end(struct graph_block *ended)
{
	struct graph_block **at = &graph_memory_ended;

	while (*at)
		at = &(*at)->next;
	*at = ended;
}

static void drop_conditions(struct graph *g)
{
	while (g->conditions) {
		struct condition *c = g->conditions;

		g->conditions = c->of_graph;
		c->of_graph = NULL;
		condition_unref(c);
	}
}

void graph_free(struct graph *g)
{
	while (g->nodes) {
		struct graph_node *n = g->nodes;

		g->nodes = n->next;
		node_free(n);
	}
	if (!g->hidden)
		handle_remove(g);
	drop_conditions(g);
	user_objects_drop(&g->objects);
	graph_memory_end(graph_blocks_drop(&g->blocks));
	free(g);
}

bool node_depends_on(const struct graph_node *node, const struct graph_node *on)
{
	for (size_t i = 0; i < node->n_deps; i++) {
		if (node->deps[i] == on)
			return true;
	}
	return false;
}

/* Backwards from the node, each other node once. */
bool node_follows(const struct graph_node *node, const struct graph_node *on)
{
	for (struct graph_node *n = node->graph->nodes; n; n = n->next)
		n->waits = 0;
	((struct graph_node *)node)->waits = 1;
	for (bool more = true; more && !on->waits;) {
		more = false;
		for (struct graph_node *n = node->graph->nodes; n; n = n->next) {
			if (n->waits != 1)
				continue;
			n->waits = 2;
			more = true;
			for (size_t i = 0; i < n->n_deps; i++)
				n->deps[i]->waits += !n->deps[i]->waits;
		}
	}
	return on->waits;
}

int node_depend(struct graph_node *node, struct graph_node *on)
{
	struct graph_node **deps = realloc(node->deps, (node->n_deps + 1) * sizeof(struct graph_node *));

	if (!deps)
		return -ENOMEM;
	node->deps = deps;
	deps[node->n_deps++] = on;
	return 0;
}

bool graph_any_inside(const struct graph *g, bool (*is)(const struct graph_node *))
{
	for (const struct graph_node *n = g->nodes; n; n = n->next) {
		const struct graph *inner;

		if (is(n))
			return true;
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			if (graph_any_inside(inner, is))
				return true;
	}
	return false;
}

static bool is_conditional(const struct graph_node *n)
{
	return n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool graph_decides(const struct graph *g)
{
	return graph_any_inside(g, is_conditional);
}

bool graph_is_captured(const struct graph *g)
{
	const struct graph *inner;

	if (g->capture)
		return true;
	for (const struct graph_node *n = g->nodes; n; n = n->next)
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			if (graph_is_captured(inner))
				return true;
	return false;
}

struct graph_node *graph_add(struct graph *g, const struct graph_node *made, struct graph_node *const *deps, size_t n)
{
	struct graph_node *node = malloc(sizeof(*node));
	struct graph *inner;
	int error = node ? 0 : -ENOMEM;

	if (error) {
		struct graph_node lost = *made;

		node_clear(&lost);
		return NULL;
	}
	*node = *made;
	node->graph = g;
	node->next = NULL;
	node->deps = NULL;
	node->n_deps = 0;
	node->id = next_id();
	node->number = g->numbered++;
	if (!node->origin)
		node->origin = node->id;
	for (size_t i = 0; (inner = node_inner(node, i)); i++)
		inner->parent = node;
	for (size_t i = 0; !error && i < n; i++)
		error = node_depend(node, deps[i]);
	if (!error && !g->hidden)
		error = handle_add(node, HANDLE_GRAPH_NODE);
	if (error) {
		node_clear(node);
		free(node->deps);
		free(node);
		return NULL;
	}
	*g->last = node;
	g->last = &node->next;
	g->n_nodes++;
	return node;
}

static struct graph_node *find_origin(const struct graph *g, uint64_t origin)
{
	struct graph_node *n = g->nodes;

	while (n && n->origin != origin)
		n = n->next;
	return n;
}

/* In the same order of creation, so that one walk over both finds what belongs together. */
static int copy_edges(struct graph *to, const struct graph *from)
{
	struct graph_node **copies = calloc(from->n_nodes + 1, sizeof(struct graph_node *));
	struct graph_node *a, *b;
	size_t i = 0;
	int error = copies ? 0 : -ENOMEM;

	for (a = from->nodes, b = to->nodes; a && !error; a = a->next, b = b->next) {
		a->waits = i; /* its place */
		copies[i++] = b;
	}
	for (a = from->nodes, b = to->nodes; a && !error; a = a->next, b = b->next) {
		for (size_t d = 0; d < a->n_deps && !error; d++)
			error = node_depend(b, copies[a->deps[d]->waits]);
	}
	free(copies);
	return error;
}

static int node_copy_contents(struct graph_node *to, const struct graph_node *from)
{
	size_t pointers = from->kernel.n_params * sizeof(void *);
	char *bytes;

	if (from->type != CU_GRAPH_NODE_TYPE_KERNEL) {
		struct graph_node kept = *to;

		*to = *from;
		to->graph = NULL, to->next = NULL, to->deps = NULL, to->n_deps = 0;
		to->origin = kept.origin, to->disabled = kept.disabled;
		return to->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && !memory_own(&to->memory) ? -ENOMEM : 0;
	}
	to->type = from->type;
	to->kernel = from->kernel;
	to->kernel.params = malloc(pointers + from->kernel.bytes + 1);
	if (!to->kernel.params)
		return -ENOMEM;
	bytes = (char *)to->kernel.params + pointers;
	memcpy(bytes, (char *)from->kernel.params + pointers, from->kernel.bytes);
	for (size_t i = 0; i < from->kernel.n_params; i++)
		to->kernel.params[i] = bytes + ((char *)from->kernel.params[i] - (char *)from->kernel.params - pointers);
	return 0;
}

bool conditional_copy(struct graph_node *to, const struct graph_node *from)
{
	const struct graph_conditional *had = &from->conditional;
	struct graph_conditional *c = &to->conditional;
	bool good;

	*c = (struct graph_conditional){ had->condition, had->kind, had->size, false, calloc(had->size, sizeof(struct graph *)) };
	c->condition->refs++;
	good = c->bodies;
	for (unsigned int i = 0; good && i < c->size; i++) {
		c->bodies[i] = graph_copy(had->bodies[i], true);
		good = c->bodies[i];
	}
	if (!good)
		conditional_clear(to);
	return good;
}

struct graph *graph_copy(const struct graph *g, bool hidden)
{
	struct graph *to = graph_new(hidden);
	int error = to ? 0 : -ENOMEM;

	for (struct graph_node *n = g->nodes; n && !error; n = n->next) {
		struct graph_node made = { .type = n->type, .origin = n->origin, .disabled = n->disabled };

		error = node_copy_contents(&made, n);
		if (!error && made.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			made.child = graph_copy(n->child, hidden);
			error = made.child ? 0 : -ENOMEM;
		} else if (!error && made.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
			error = conditional_copy(&made, n) ? 0 : -ENOMEM;
		}
		if (!error)
			error = graph_add(to, &made, NULL, 0) ? 0 : -ENOMEM;
	}
	if (!error)
		error = copy_edges(to, g);
	if (!error)
		error = user_objects_share(&to->objects, &g->objects) == CUDA_SUCCESS ? 0 : -ENOMEM;
	if (error && to)
		graph_free(to);
	return error ? NULL : to;
}

void graph_rename(struct graph *g)
{
	for (struct graph_node *n = g->nodes; n; n = n->next) {
		n->origin = n->id;
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH)
			graph_rename(n->child);
	}
}

CUresult graph_get(CUgraph handle, struct graph **out)
{
	*out = (struct graph *)handle;
	return handle_is(handle, HANDLE_GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_get(CUgraphNode handle, struct graph_node **out)
{
	*out = (struct graph_node *)handle;
	return handle_is(handle, HANDLE_GRAPH_NODE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_check_nodes(const struct graph *g, const CUgraphNode *nodes, size_t n)
{
	CUresult r = nodes || !n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	struct graph_node *node;

	for (struct graph_node *other = g->nodes; other; other = other->next)
		other->waits = 0;
	for (size_t i = 0; r == CUDA_SUCCESS && i < n; i++) {
		r = node_get(nodes[i], &node);
		if (r == CUDA_SUCCESS && (node->graph != g || node->waits++))
			r = CUDA_ERROR_INVALID_VALUE;
	}
	return r;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	CONTEXT_ENTER(ctx);
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	*out = (CUgraph)graph_new(false);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphClone(CUgraph *out, CUgraph original)
{
	struct graph *g;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = graph_get(original, &g);
	if (r == CUDA_SUCCESS && (g->blocks.count || graph_decides(g)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*out = (CUgraph)graph_copy(g, false);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	struct graph_node *n;
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = out ? node_get(original, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = graph_get(clone, &g);
	if (r != CUDA_SUCCESS)
		return r;
	*out = (CUgraphNode)(n->graph == g ? NULL : find_origin(g, n->origin));
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- edges and nodes that come and go */

static CUresult edge_get(const struct graph *g, CUgraphNode from, CUgraphNode to, struct graph_node **a,
			 struct graph_node **b)
{
	CUresult r = node_get(from, a);

	if (r == CUDA_SUCCESS)
		r = node_get(to, b);
	return r == CUDA_SUCCESS && (*a == *b || (*a)->graph != g || (*b)->graph != g) ? CUDA_ERROR_INVALID_VALUE : r;
}

static void forget_edge(struct graph_node *node, const struct graph_node *on)
{
	for (size_t i = 0; i < node->n_deps; i++) {
		if (node->deps[i] == on) {
			memmove(&node->deps[i], &node->deps[i + 1], (node->n_deps - i - 1) * sizeof(node->deps[0]));
			node->n_deps--;
			return;
		}
	}
}

/* All or none of them. */
static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t n, bool add)
{
	struct graph_node *a = NULL, *b = NULL;
	struct graph *g;
	CUresult r;
	size_t i;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = n && (!from || !to) ? CUDA_ERROR_INVALID_VALUE : graph_get(handle, &g);
	if (r == CUDA_SUCCESS && !add && g->blocks.count)
		r = CUDA_ERROR_INVALID_VALUE;
	for (i = 0; r == CUDA_SUCCESS && i < n; i++) {
		r = edge_get(g, from[i], to[i], &a, &b);
		if (r == CUDA_SUCCESS && node_depends_on(b, a) == add)
			r = CUDA_ERROR_INVALID_VALUE;
		else if (r == CUDA_SUCCESS && !add)
			forget_edge(b, a);
		else if (r == CUDA_SUCCESS && node_depend(b, a))
			r = CUDA_ERROR_OUT_OF_MEMORY;
		if (r != CUDA_SUCCESS)
			break;
	}
	while (r != CUDA_SUCCESS && add && i--) {
		edge_get(g, from[i], to[i], &a, &b);
		forget_edge(b, a);
	}
	return r;
}

CUresult cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *data, size_t n)
{
	CUresult r = cuda_check_edges(data, n);

	return r == CUDA_SUCCESS ? change_edges(g, from, to, n, true) : r;
}

CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return change_edges(g, from, to, n, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t n)
{
	CUresult r = cuda_check_edges(data, n);

	return r == CUDA_SUCCESS ? change_edges(g, from, to, n, false) : r;
}

CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return change_edges(g, from, to, n, false);
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
	struct graph_node *node, **at;
	struct graph *inner;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = node_get(handle, &node);
	if (r == CUDA_SUCCESS && (node->graph->capture || node->graph->blocks.count))
		r = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; r == CUDA_SUCCESS && (inner = node_inner(node, i)); i++)
		r = graph_is_captured(inner) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	for (at = &node->graph->nodes; *at != node; at = &(*at)->next)
		;
	*at = node->next;
	for (at = &node->graph->nodes; *at; at = &(*at)->next)
		forget_edge(*at, node);
	node->graph->last = at;
	node->graph->n_nodes--;
	node_free(node);
	return CUDA_SUCCESS;
}
