/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditional nodes. Their handles are the driver's own, because kernels get them as they are. The bodies are graphs as any other,
 * and the node's: they get their handles with it.
 */
#include <string.h>

#include <any_node.h>

#include "graph_children.h"
#include "graph_place.h"
#include "graph_reads.h"

enum { BODIES = 256, DEPTH = 64 };

/* CUDA_ERROR_NOT_SUPPORTED: another one than the current. */
static CUresult check_context(CUcontext wanted, uint64_t current)
{
	if (!wanted || (uint64_t)wanted == current)
		return CUDA_SUCCESS;
	return shim_object_get(SHIM_CONTEXT, (uint64_t)wanted) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
						 unsigned int defaultLaunchValue, unsigned int flags)
{
	struct vg_graph_condition_request in = { .initial = defaultLaunchValue, .flags = flags };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_condition_reply out;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && (!pHandle_out || flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_graph(hGraph, &in.graph);
	if (r == CUDA_SUCCESS)
		r = check_context(ctx, in.context);
	if (r == CUDA_SUCCESS)
		r = vg_send_graph_condition(&in, &out);
	if (r == CUDA_ERROR_NOT_SUPPORTED) /* drivers have them since 12.4 */
		return shim_unsupported("a conditional handle, with the host's driver or of such a context,", &told);
	if (r == CUDA_SUCCESS)
		*pHandle_out = out.condition;
	return r;
}

/* ---- bodies */

struct bodies {
	struct shim_object *objects[BODIES];
	uint64_t ids[BODIES];
	unsigned int count, put; /* put: those that the worker knows */
};

static void give_back(struct bodies *b)
{
	while (b->count > b->put)
		shim_object_recycle(SHIM_GRAPH, b->ids[--b->count]);
}

/* Before there is a node: handles may run out. */
static CUresult reserve(uint64_t context, unsigned int count, struct bodies *b)
{
	b->count = b->put = 0;
	while (b->count < count) {
		b->objects[b->count] = shim_object_new(SHIM_GRAPH, context, &b->ids[b->count]);
		if (!b->objects[b->count]) {
			give_back(b);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		b->count++;
	}
	return CUDA_SUCCESS;
}

static CUresult put_body(const struct shim_place *p, uint32_t number, struct shim_object *graph, struct bodies *b)
{
	struct vg_graph_body_request in = { p->context, b->ids[b->put], p->graph, number, b->put };
	struct shim_object *o = b->objects[b->put];
	CUresult r = vg_send_graph_body(&in);

	if (r != CUDA_SUCCESS)
		return r;
	shim_hosts_begin(o);
	o->graph.parent = p->graph;
	o->graph.body = true;
	shim_object_publish(o, in.created);
	b->put++;
	if (shim_child_add(graph, number, in.body, in.created))
		return CUDA_SUCCESS;
	shim_object_retire(o, in.created); /* its node is taken back, and it with that */
	b->put--;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Of a node that the worker has; its array is the node's, as documented. */
static CUresult put_bodies(const struct shim_place *p, uint32_t number, struct bodies *b, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct shim_object *graph = shim_object_get(SHIM_GRAPH, p->graph);
	CUresult r = graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	CUgraph *kept = NULL;

	while (r == CUDA_SUCCESS && b->put < b->count)
		r = put_body(p, number, graph, b);
	if (r == CUDA_SUCCESS)
		kept = shim_kept_bytes(graph, number, b->ids, b->count * sizeof(b->ids[0]));
	if (!kept)
		return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
	for (struct shim_object *o = graph; o; o = o->graph.parent ? shim_object_get(SHIM_GRAPH, o->graph.parent) : NULL)
		o->graph.decides = true;
	params->phGraph_out = kept;
	return CUDA_SUCCESS;
}

/* How many bodies a graph is inside of. */
static unsigned int depth_of(uint64_t graph)
{
	const struct shim_object *o = shim_object_get(SHIM_GRAPH, graph);
	unsigned int depth = 0;

	for (; o && o->graph.parent; o = shim_object_get(SHIM_GRAPH, o->graph.parent))
		depth++;
	return depth;
}

static CUresult check(const CUDA_CONDITIONAL_NODE_PARAMS *p, uint64_t context, uint64_t graph)
{
	static atomic_flag told = ATOMIC_FLAG_INIT, told_depth = ATOMIC_FLAG_INIT;
	unsigned int most = p->type == CU_GRAPH_COND_TYPE_IF ? 2 : p->type == CU_GRAPH_COND_TYPE_WHILE ? 1 : UINT32_MAX;

	if (p->type > CU_GRAPH_COND_TYPE_SWITCH || !p->size || p->size > most)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->size > BODIES)
		return shim_unsupported("a conditional node of more than 256 bodies", &told);
	if (depth_of(graph) >= DEPTH)
		return shim_unsupported("a conditional node inside of 64 others", &told_depth);
	return check_context(p->ctx, context);
}

CUresult conditional_add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count,
			 CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct vg_graph_conditional_request in = { .condition = params->handle, .kind = params->type, .bodies = params->size };
	struct vg_graph_conditional_reply reply;
	struct shim_place p;
	struct bodies b;
	CUresult r = shim_place_add(&p, out, hGraph, dependencies, count);

	if (r == CUDA_SUCCESS)
		r = check(params, p.context, p.graph);
	if (r == CUDA_SUCCESS)
		r = reserve(p.context, params->size, &b);
	if (r != CUDA_SUCCESS)
		return r;
	in.context = p.context, in.graph = p.graph, in.dependencies = p.sent;
	r = vg_send_graph_conditional(&in, &reply);
	if (r == CUDA_SUCCESS) {
		r = put_bodies(&p, reply.added, &b, params);
		if (r != CUDA_SUCCESS)
			shim_node_undo(shim_node_handle(p.graph, reply.added));
	}
	give_back(&b);
	return shim_place_finish(&p, r, reply.added, out);
}

CUresult conditional_get(CUgraphNode hNode, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct vg_graph_node_read_reply out;
	uint64_t ids[BODIES];
	struct shim_object *graph;
	struct shim_node node;
	CUgraph *kept;
	CUresult r = shim_node_read(hNode, CU_GRAPH_NODE_TYPE_CONDITIONAL, params, &node, &out, &(struct shim_host){ 0 });

	if (r != CUDA_SUCCESS)
		return r;
	graph = shim_object_get(SHIM_GRAPH, node.graph);
	if (!graph || out.element > BODIES)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < out.element; i++)
		ids[i] = shim_child_find(graph, node.number, i);
	kept = shim_kept_bytes(graph, node.number, ids, out.element * sizeof(ids[0]));
	*params = (CUDA_CONDITIONAL_NODE_PARAMS){ out.destination, (CUgraphConditionalNodeType)out.value, out.element, kept,
						  (CUcontext)out.object };
	return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
