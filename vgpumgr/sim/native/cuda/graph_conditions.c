/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditional nodes. A launch puts one operation into the stream for each: when the stream gets there, it asks the handle's
 * value and runs bodies in a stream of its own, by the same calls as any other work.
 */
#include <stdlib.h>
#include <string.h>

#include "graph_conditions.h"

#include <any_node.h>

enum { DEPTH = 64 }; /* of bodies inside of one another */

/* ---- handles */

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph handle, CUcontext context, unsigned int initial,
					unsigned int flags)
{
	struct condition *made;
	struct graph *g;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out || flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = graph_get(handle, &g);
	if (r == CUDA_SUCCESS && context && !handle_is(context, HANDLE_CONTEXT))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	made = condition_new(&g->conditions, context ? context : (CUcontext)ctx, initial, flags);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = made->handle;
	return CUDA_SUCCESS;
}

/* A handle of the graph, or of one that it is inside of. */
static struct condition *find(const struct graph *g, uint64_t handle)
{
	struct condition *c = NULL;

	for (; g && !c; g = g->parent ? g->parent->graph : NULL)
		for (c = g->conditions; c && c->handle != handle;)
			c = c->of_graph;
	return c;
}

/* ---- nodes */

static bool is_size(CUgraphConditionalNodeType kind, unsigned int size)
{
	return kind == CU_GRAPH_COND_TYPE_IF ? size == 1 || size == 2 :
	       kind == CU_GRAPH_COND_TYPE_WHILE ? size == 1 :
						  kind == CU_GRAPH_COND_TYPE_SWITCH && size;
}

static bool make(struct condition *c, const CUDA_CONDITIONAL_NODE_PARAMS *p, struct graph_node *made)
{
	struct graph_conditional *n = &made->conditional;
	bool good;

	*made = (struct graph_node){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	*n = (struct graph_conditional){ c, p->type, p->size, true, calloc(p->size, sizeof(struct graph *)) };
	c->refs++;
	good = n->bodies;
	for (unsigned int i = 0; good && i < n->size; i++) {
		n->bodies[i] = graph_new(false);
		good = n->bodies[i];
	}
	if (!good)
		node_clear(made);
	return good;
}

/* With the lock held. */
static CUresult find_free(struct context *ctx, const struct graph *g, const CUDA_CONDITIONAL_NODE_PARAMS *p,
			  struct condition **out)
{
	struct condition *c = find(g, p->handle);

	*out = c;
	if (!c || c->used || c->context != (p->ctx ? p->ctx : (CUcontext)ctx) || !is_size(p->type, p->size))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult conditional_add(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps, size_t n, CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	struct graph_node made, *node;
	unsigned int depth = 0;
	struct condition *c;
	struct graph *g;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = out ? graph_get(handle, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = graph_check_nodes(g, deps, n);
	if (r == CUDA_SUCCESS)
		r = find_free(ctx, g, p, &c);
	for (const struct graph *a = g; r == CUDA_SUCCESS && a->parent; a = a->parent->graph) {
		if (a->parent->type == CU_GRAPH_NODE_TYPE_GRAPH) /* a child graph may have none */
			r = CUDA_ERROR_INVALID_VALUE;
		else if (++depth >= DEPTH) /* each is copied, run and ended by the one around it */
			r = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (r != CUDA_SUCCESS)
		return r;
	node = make(c, p, &made) ? graph_add(g, &made, (struct graph_node *const *)deps, n) : NULL;
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->used = true;
	*out = (CUgraphNode)node;
	p->phGraph_out = (CUgraph *)node->conditional.bodies;
	return CUDA_SUCCESS;
}

CUresult conditional_get(CUgraphNode handle, CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	struct graph_node *node;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = node_get(handle, &node);
	if (r == CUDA_SUCCESS && node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*p = (CUDA_CONDITIONAL_NODE_PARAMS){ node->conditional.condition->handle, node->conditional.kind, node->conditional.size,
					     (CUgraph *)node->conditional.bodies, node->conditional.condition->context };
	return CUDA_SUCCESS;
}

/* ---- launches */

struct begin_op {
	struct op op;
	size_t n;
	struct condition *at[]; /* held */
};

static CUresult run_begin(struct op *op)
{
	struct begin_op *b = (struct begin_op *)op;

	for (size_t i = 0; i < b->n; i++)
		__atomic_store_n(&b->at[i]->value, b->at[i]->initial, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static void release_begin(struct op *op)
{
	struct begin_op *b = (struct begin_op *)op;

	for (size_t i = 0; i < b->n; i++)
		condition_unref(b->at[i]);
	free(b);
}

/* Those that begin each launch with their default; `to` NULL: counts them only. */
static size_t gather(const struct graph *g, struct condition **to, size_t n)
{
	const struct graph *inner;

	for (const struct graph_node *node = g->nodes; node; node = node->next) {
		if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
		    node->conditional.condition->flags & CU_GRAPH_COND_ASSIGN_DEFAULT) {
			if (to)
				to[n] = node->conditional.condition;
			n++;
		}
		for (size_t i = 0; (inner = node_inner(node, i)); i++)
			n = gather(inner, to, n);
	}
	return n;
}

static CUresult submit(CUstream handle, struct op *op)
{
	struct context *ctx = context_current();
	struct stream *s;
	CUresult r;

	r = ctx ? stream_get(ctx, handle, &s) : CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS) {
		op->release(op);
		return r;
	}
	return queue_submit(s, op);
}

CUresult conditions_begin(const struct graph *g, CUstream stream)
{
	struct begin_op *b;
	size_t n;

	DRV_LOCKED(); /* an update changes what is counted */
	n = gather(g, NULL, 0);
	if (!n)
		return CUDA_SUCCESS;
	b = calloc(1, sizeof(*b) + n * sizeof(b->at[0]));
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->op = (struct op){ .run = run_begin, .release = release_begin };
	b->n = gather(g, b->at, 0);
	for (size_t i = 0; i < n; i++)
		b->at[i]->refs++;
	return submit(stream, &b->op);
}

/* The bodies are the launch's own: the executable graph may change, and go, before the stream gets there. */
struct conditional_op {
	struct op op;
	CUresult (*launch)(struct graph *, CUstream);
	struct graph_node node;
	struct stream *inner; /* where bodies run; NULL: none has run yet */
};

static struct stream *open_inner(struct conditional_op *c)
{
	if (c->inner)
		return c->inner;
	c->inner = queue_create(c->op.stream->ctx, CU_STREAM_NON_BLOCKING, c->op.stream->attributes.priority, false);
	if (!c->inner)
		return NULL;
	c->inner->refs++; /* the context's end closes it, too */
	if (!handle_add(c->inner, HANDLE_STREAM))
		return c->inner;
	queue_close(c->inner);
	stream_unref(c->inner);
	return c->inner = NULL;
}

static void close_inner(struct conditional_op *c)
{
	if (!c->inner)
		return;
	if (!c->inner->closing)
		queue_close(c->inner);
	stream_unref(c->inner);
}

static CUresult run_body(struct conditional_op *c, struct graph *body)
{
	struct stream *inner;
	CUresult r;

	drv_lock();
	inner = open_inner(c);
	drv_unlock();
	if (!inner)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = c->launch(body, (CUstream)inner);
	drv_lock();
	if (r == CUDA_SUCCESS)
		r = queue_wait(inner, inner->submitted);
	drv_unlock();
	return r;
}

/* What the value asks for now; NULL: nothing, or nothing more. */
static struct graph *next_body(const struct graph_conditional *n, bool first)
{
	unsigned int value = __atomic_load_n(&n->condition->value, __ATOMIC_ACQUIRE);

	if (!first && n->kind != CU_GRAPH_COND_TYPE_WHILE)
		return NULL;
	if (n->kind == CU_GRAPH_COND_TYPE_SWITCH)
		return value < n->size ? n->bodies[value] : NULL;
	return value ? n->bodies[0] : n->size == 2 ? n->bodies[1] : NULL;
}

static CUresult run_conditional(struct op *op)
{
	struct conditional_op *c = (struct conditional_op *)op;
	struct context *ctx = op->stream->ctx;
	struct graph *body;
	CUresult r;

	drv_lock();
	r = context_push(ctx) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	drv_unlock();
	for (bool first = true; r == CUDA_SUCCESS && (body = next_body(&c->node.conditional, first)); first = false) {
		r = run_body(c, body);
		if (__atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED))
			break;
	}
	drv_lock();
	close_inner(c);
	if (context_current() == ctx)
		context_unref(context_pop());
	drv_unlock();
	/* what the end of the context, or of a module before it, cuts off is no fault of the graph */
	return r == CUDA_ERROR_INVALID_HANDLE || __atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED) ? CUDA_SUCCESS : r;
}

static void release_conditional(struct op *op)
{
	struct conditional_op *c = (struct conditional_op *)op;

	node_clear(&c->node);
	free(c);
}

CUresult conditional_launch(const struct graph_node *node, CUresult (*launch)(struct graph *, CUstream), CUstream stream)
{
	struct conditional_op *c = calloc(1, sizeof(*c));

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->op = (struct op){ .run = run_conditional, .release = release_conditional };
	c->launch = launch;
	c->node.type = node->type;
	DRV_LOCKED();
	if (!conditional_copy(&c->node, node)) {
		free(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return submit(stream, &c->op);
}
