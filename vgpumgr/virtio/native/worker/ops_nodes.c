/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: nodes, added, or changed in a graph or in an executable one. What they use is checked and held as for a call that runs now. */
#include <stdlib.h>
#include <string.h>

#include <cuda_rules.h>

#include "session.h"
#include "vg_worker.h"

enum { ADD, SET, SET_EXEC };
enum { MOST_DEPENDENCIES = 256 };

struct place {
	uint32_t how;
	struct wk_use use;
	struct wk_object *graph, *exec;   /* graph: the used one */
	CUgraphNode node;
	CUgraphNode dependencies[MOST_DEPENDENCIES];
	size_t count;
	uint64_t weight;          /* of a new node with its edges */
};

static void leave(struct place *p)
{
	wk_graph_unuse(&p->use);
	wk_release_held(&p->exec);
}
#define PLACE __attribute__((cleanup(leave))) struct place

/* Room for one more before the driver makes it, so that nothing can go wrong afterwards. */
static CUresult make_room(struct wk_graph *g)
{
	uint32_t room = g->room ? 2 * g->room : 64;
	CUgraphNode *nodes;

	if (g->count == g->room) {
		nodes = realloc(g->nodes, room * sizeof(CUgraphNode));
		if (!nodes)
			return CUDA_ERROR_OUT_OF_MEMORY;
		g->nodes = nodes;
		g->room = room;
	}
	return CUDA_SUCCESS;
}

static CUresult find(struct wk_call *c, uint64_t graph, uint64_t exec, uint32_t how, uint32_t node,
		     const struct vg_bytes *dependencies, struct place *p)
{
	CUresult r = wk_graph_use(c, graph, &p->use);

	p->graph = p->use.graph;
	p->how = how;
	if (r == CUDA_SUCCESS && how == SET_EXEC)
		r = wk_hold(c, WK_GRAPH_EXEC, exec, &p->exec);
	if (r == CUDA_SUCCESS && how == ADD)
		r = wk_read_nodes(p->graph, dependencies, p->dependencies, MOST_DEPENDENCIES, &p->count);
	else if (r == CUDA_SUCCESS)
		r = how <= SET_EXEC ? wk_node_of(p->graph, node, &p->node) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS && how == ADD ? make_room(p->graph->graph) : r;
}

/* What a node uses stays as long as it may be launched. */
static struct wk_holds *holds_of(const struct place *p)
{
	return p->how == SET_EXEC ? &p->exec->graph->holds : &wk_graph_all(p->graph)->holds;
}

static CUresult hold(const struct place *p, struct wk_object *used)
{
	return wk_holds_add(holds_of(p), used);
}

/* The driver's answer; a new node gets its number, and is charged already. */
static CUresult added(const struct place *p, CUresult r, uint32_t *number)
{
	struct wk_graph *g = p->graph->graph;

	if (p->how != ADD)
		return r;
	if (r != CUDA_SUCCESS) {
		wk_nodes_refund(p->weight);
		return r;
	}
	g->nodes[g->count] = p->node;
	wk_graph_all(p->graph)->weight += p->weight;
	*number = g->count++;
	return r;
}

/* Edges cost as nodes do. */
static CUresult charge(struct place *p, uint64_t nodes)
{
	p->weight = nodes + p->count;
	return p->how != ADD || wk_nodes_charge(p->weight) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult wk_do_graph_kernel(struct wk_call *c, const struct vg_graph_kernel_request *in, struct vg_graph_kernel_reply *out)
{
	struct wk_object *function WK_HELD = NULL;
	void *parameters[WK_PARAMETERS];
	PLACE p = { .graph = NULL };
	CUDA_KERNEL_NODE_PARAMS_v2 k = { .kernelParams = parameters, .sharedMemBytes = in->shared_bytes };
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_FUNCTION, in->function, &function);
	if (r == CUDA_SUCCESS && in->parameters.length != function->parameters_bytes)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = hold(&p, function);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	k.func = wk_raw(function);
	k.gridDimX = in->grid_x, k.gridDimY = in->grid_y, k.gridDimZ = in->grid_z;
	k.blockDimX = in->block_x, k.blockDimY = in->block_y, k.blockDimZ = in->block_z;
	for (uint32_t i = 0; i < function->parameters_count; i++)
		parameters[i] = (uint8_t *)in->parameters.data + function->parameters[i].offset;
	if (p.how == SET)
		return wk_driver.cuGraphKernelNodeSetParams_v2(p.node, &k);
	if (p.how == SET_EXEC)
		return wk_driver.cuGraphExecKernelNodeSetParams_v2(p.exec->driver, p.node, &k);
	r = wk_driver.cuGraphAddKernelNode_v2(&p.node, p.graph->driver, p.dependencies, p.count, &k);
	return added(&p, r, &out->added);
}

CUresult wk_do_graph_copy(struct wk_call *c, const struct vg_graph_copy_request *in, struct vg_graph_copy_reply *out)
{
	PLACE p = { .graph = NULL };
	struct wk_box to = { 0, in->destination, in->destination_pitch, in->destination_slice, in->width, in->rows, in->slices,
			     0, false };
	struct wk_box from = { 0, in->source, in->source_pitch, in->source_slice, in->width, in->rows, in->slices, 0, false };
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = in->source,
		.srcPitch = in->source_pitch,
		.srcHeight = in->source_pitch ? in->source_slice / in->source_pitch : 0,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = in->destination,
		.dstPitch = in->destination_pitch,
		.dstHeight = in->destination_pitch ? in->destination_slice / in->destination_pitch : 0,
		.WidthInBytes = in->width,
		.Height = in->rows,
		.Depth = in->slices,
	};
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_check_box(c, &to);
	if (r == CUDA_SUCCESS)
		r = wk_check_box(c, &from);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	if (p.how == SET)
		return wk_driver.cuGraphMemcpyNodeSetParams(p.node, &copy);
	if (p.how == SET_EXEC)
		return wk_driver.cuGraphExecMemcpyNodeSetParams(p.exec->driver, p.node, &copy, c->context->driver);
	r = wk_driver.cuGraphAddMemcpyNode(&p.node, p.graph->driver, p.dependencies, p.count, &copy, c->context->driver);
	return added(&p, r, &out->added);
}

CUresult wk_do_graph_memset(struct wk_call *c, const struct vg_graph_memset_request *in, struct vg_graph_memset_reply *out)
{
	PLACE p = { .graph = NULL };
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = in->address,
		.pitch = in->pitch,
		.value = in->value,
		.elementSize = in->element,
		.width = in->width,
		.height = in->rows,
	};
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS && in->element != 1 && in->element != 2 && in->element != 4)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_check_range(c, in->address, in->width, in->element, in->rows, in->pitch);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	if (p.how == SET)
		return wk_driver.cuGraphMemsetNodeSetParams(p.node, &fill);
	if (p.how == SET_EXEC)
		return wk_driver.cuGraphExecMemsetNodeSetParams(p.exec->driver, p.node, &fill, c->context->driver);
	r = wk_driver.cuGraphAddMemsetNode(&p.node, p.graph->driver, p.dependencies, p.count, &fill, c->context->driver);
	return added(&p, r, &out->added);
}

CUresult wk_do_graph_memory(struct wk_call *c, const struct vg_graph_memory_request *in, struct vg_graph_memory_reply *out)
{
	CUstreamBatchMemOpParams list[CUDA_MEMORY_OPERATIONS];
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .ctx = c->context->driver, .paramArray = list };
	PLACE p = { .graph = NULL };
	bool waits = false;
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_read_memory_operations(c, &in->operations, list, &params.count, &waits);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	if (p.how == SET)
		return wk_driver.cuGraphBatchMemOpNodeSetParams(p.node, &params);
	if (p.how == SET_EXEC)
		return wk_driver.cuGraphExecBatchMemOpNodeSetParams(p.exec->driver, p.node, &params);
	r = wk_driver.cuGraphAddBatchMemOpNode(&p.node, p.graph->driver, p.dependencies, p.count, &params);
	return added(&p, r, &out->added);
}

static CUresult set_event(const struct place *p, CUevent event, bool waits)
{
	if (p->how == SET)
		return waits ? wk_driver.cuGraphEventWaitNodeSetEvent(p->node, event) :
			       wk_driver.cuGraphEventRecordNodeSetEvent(p->node, event);
	return waits ? wk_driver.cuGraphExecEventWaitNodeSetEvent(p->exec->driver, p->node, event) :
		       wk_driver.cuGraphExecEventRecordNodeSetEvent(p->exec->driver, p->node, event);
}

CUresult wk_do_graph_event(struct wk_call *c, const struct vg_graph_event_request *in, struct vg_graph_event_reply *out)
{
	struct wk_object *event WK_HELD = NULL;
	PLACE p = { .graph = NULL };
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_EVENT, in->event, &event);
	if (r == CUDA_SUCCESS)
		r = hold(&p, event);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	if (p.how != ADD)
		return set_event(&p, wk_raw(event), in->waits);
	r = in->waits ? wk_driver.cuGraphAddEventWaitNode(&p.node, p.graph->driver, p.dependencies, p.count, wk_raw(event)) :
			wk_driver.cuGraphAddEventRecordNode(&p.node, p.graph->driver, p.dependencies, p.count,
							    wk_raw(event));
	return added(&p, r, &out->added);
}

/* The driver copies a child graph, and all that is in it. */
CUresult wk_do_graph_child(struct wk_call *c, const struct vg_graph_child_request *in, struct vg_graph_child_reply *out)
{
	struct wk_object *child WK_HELD = NULL;
	PLACE p = { .graph = NULL };
	uint64_t weight = 1;
	CUresult r = in->child ? wk_graph_hold(c, in->child, &child) : CUDA_SUCCESS; /* first: each may take the lock */

	if (r == CUDA_SUCCESS)
		r = find(c, in->graph, 0, ADD, 0, &in->dependencies, &p);
	if (r == CUDA_SUCCESS && child == p.graph)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && child)
		r = wk_host_alone(holds_of(&p), &wk_graph_all(child)->holds);
	if (r == CUDA_SUCCESS && child) {
		weight += wk_graph_all(child)->weight;
		r = wk_holds_add_all(holds_of(&p), &wk_graph_all(child)->holds);
	}
	if (r == CUDA_SUCCESS)
		r = charge(&p, weight);
	if (r != CUDA_SUCCESS)
		return r;
	r = child ? wk_driver.cuGraphAddChildGraphNode(&p.node, p.graph->driver, p.dependencies, p.count, child->driver) :
		    wk_driver.cuGraphAddEmptyNode(&p.node, p.graph->driver, p.dependencies, p.count);
	return added(&p, r, &out->added);
}

/* Charged as a node, as long as the graph is there. */
CUresult wk_do_graph_condition(struct wk_call *c, const struct vg_graph_condition_request *in,
			       struct vg_graph_condition_reply *out)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUgraphConditionalHandle made = 0;
	struct wk_graph *g;
	uint64_t *more;
	CUresult r = in->flags & ~(uint32_t)CU_GRAPH_COND_ASSIGN_DEFAULT ? CUDA_ERROR_INVALID_VALUE :
									    wk_graph_use(c, in->graph, &use);

	if (r != CUDA_SUCCESS)
		return r;
	g = use.graph->graph;
	more = reallocarray(g->conditions, g->conditions_count + 1u, sizeof(*more));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->conditions = more;
	if (!wk_nodes_charge(1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphConditionalHandleCreate(&made, use.graph->driver, c->context->driver, in->initial, in->flags);
	if (r != CUDA_SUCCESS) {
		wk_nodes_refund(1);
		return r;
	}
	wk_graph_all(use.graph)->weight++;
	g->conditions[g->conditions_count++] = made;
	out->condition = made;
	return CUDA_SUCCESS;
}

/* How many bodies a graph is inside of. */
static uint32_t depth_of(const struct wk_object *graph)
{
	uint32_t depth = 0;

	for (; graph->owner->kind == WK_GRAPH; graph = graph->owner)
		depth++;
	return depth;
}

/* Its bodies are charged as nodes, too. */
CUresult wk_do_graph_conditional(struct wk_call *c, const struct vg_graph_conditional_request *in,
				 struct vg_graph_conditional_reply *out)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	struct wk_conditional *made = NULL;
	PLACE p = { .graph = NULL };
	CUresult r = in->kind > CU_GRAPH_COND_TYPE_SWITCH || !in->bodies || in->bodies > WK_BODIES ?
			     CUDA_ERROR_INVALID_VALUE :
			     find(c, in->graph, 0, ADD, 0, &in->dependencies, &p);

	if (r == CUDA_SUCCESS && !wk_condition_is_known(p.graph, in->condition))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && depth_of(p.graph) >= WK_DEPTH)
		r = CUDA_ERROR_NOT_SUPPORTED; /* ends and launches go from one to the next */
	if (r == CUDA_SUCCESS)
		made = wk_conditional_new(in->bodies);
	if (r == CUDA_SUCCESS)
		r = made ? charge(&p, 1 + (uint64_t)in->bodies) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		free(made);
		return r;
	}
	params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){ in->condition, (CUgraphConditionalNodeType)in->kind, in->bodies, NULL,
							     c->context->driver };
	r = wk_driver.cuGraphAddNode_v2(&p.node, p.graph->driver, p.dependencies, NULL, p.count, &params);
	if (r == CUDA_SUCCESS)
		wk_conditional_keep(p.graph->graph, made, p.node, &params.conditional);
	else
		free(made);
	return added(&p, r, &out->added);
}

/* The driver takes none of another shape, so the executable graph has no more nodes than before. */
CUresult wk_do_graph_exec_child(struct wk_call *c, const struct vg_graph_exec_child_request *in)
{
	struct wk_object *child WK_HELD = NULL;
	PLACE p = { .graph = NULL };
	CUgraphNodeType type;
	CUresult r = wk_graph_hold(c, in->child, &child);

	if (r == CUDA_SUCCESS)
		r = find(c, in->graph, in->exec, SET_EXEC, in->node, NULL, &p);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphNodeGetType(p.node, &type);
	if (r == CUDA_SUCCESS && (type != CU_GRAPH_NODE_TYPE_GRAPH || wk_host_of(p.node, type)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_host_alone(holds_of(&p), &wk_graph_all(child)->holds);
	if (r == CUDA_SUCCESS)
		r = wk_holds_add_all(holds_of(&p), &wk_graph_all(child)->holds);
	return r == CUDA_SUCCESS ? wk_driver.cuGraphExecChildGraphNodeSetParams(p.exec->driver, p.node, child->driver) : r;
}

/* A function of the guest's. */
CUresult wk_do_graph_host(struct wk_call *c, const struct vg_graph_host_request *in, struct vg_graph_host_reply *out)
{
	CUDA_HOST_NODE_PARAMS params;
	PLACE p = { .graph = NULL };
	struct wk_object *host;
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_host_make(c, holds_of(&p), in->number, NULL, &host);
	if (r == CUDA_SUCCESS)
		r = charge(&p, 1);
	if (r != CUDA_SUCCESS)
		return r;
	params = wk_host_params(host);
	if (p.how == SET)
		return wk_driver.cuGraphHostNodeSetParams(p.node, &params);
	if (p.how == SET_EXEC)
		return wk_driver.cuGraphExecHostNodeSetParams(p.exec->driver, p.node, &params);
	r = wk_driver.cuGraphAddHostNode(&p.node, p.graph->driver, p.dependencies, p.count, &params);
	return added(&p, r, &out->added);
}

bool wk_is_pair(CUgraphNode node)
{
	CUgraphNodeType type;

	return wk_driver.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH &&
	       wk_host_of(node, type);
}

/* A new one of that shape takes the place of what is in a node that is a copy with the guest's memory already. */
static CUresult change_pair(struct wk_call *c, const struct place *p, struct wk_object *host, const struct wk_box *box)
{
	CUgraph pair;
	CUresult r;

	if (!wk_is_pair(p->node))
		return CUDA_ERROR_INVALID_VALUE;
	if (p->how == SET)
		return wk_host_change(p->node, host, box);
	r = wk_host_pair(c, host, box, &pair);
	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuGraphExecChildGraphNodeSetParams(p->exec->driver, p->node, pair);
	wk_driver.cuGraphDestroy(pair);
	return r;
}

CUresult wk_do_graph_host_copy(struct wk_call *c, const struct vg_graph_host_copy_request *in,
			       struct vg_graph_host_copy_reply *out)
{
	struct wk_box box = { in->number, in->address, in->pitch, in->slice, in->width, in->rows, in->slices, 0,
			      in->to_host };
	PLACE p = { .graph = NULL };
	struct wk_object *host;
	CUgraph pair;
	CUresult r = find(c, in->graph, in->exec, in->how, in->node, &in->dependencies, &p);

	if (r == CUDA_SUCCESS)
		r = wk_check_box(c, &box);
	if (r == CUDA_SUCCESS)
		r = wk_host_make(c, holds_of(&p), in->number, &box, &host);
	if (r == CUDA_SUCCESS && p.how != ADD)
		return change_pair(c, &p, host, &box);
	if (r == CUDA_SUCCESS)
		r = wk_host_pair(c, host, &box, &pair);
	if (r != CUDA_SUCCESS)
		return r;
	r = charge(&p, 3);
	if (r == CUDA_SUCCESS) {
		r = wk_driver.cuGraphAddChildGraphNode(&p.node, p.graph->driver, p.dependencies, p.count, pair);
		r = added(&p, r, &out->added);
	}
	wk_driver.cuGraphDestroy(pair);
	return r;
}
