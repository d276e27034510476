/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: copies of graphs in an order that keeps the edges. */
#include <stdlib.h>

#include "captures.h"
#include "graph_conditions.h"
#include "graph_inside.h"

enum { FLAGS = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
	       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY };

static struct graph_node *find_origin(struct graph *g, uint64_t origin)
{
	for (struct graph_node *n = g->nodes; n; n = n->next) {
		struct graph_node *found = NULL;
		struct graph *inner;

		if (n->origin == origin)
			return n;
		for (size_t i = 0; !found && (inner = node_inner(n, i)); i++)
			found = find_origin(inner, origin);
		if (found)
			return found;
	}
	return NULL;
}

static CUresult exec_get(CUgraphExec handle, struct graph_exec **out)
{
	*out = (struct graph_exec *)handle;
	return handle_is(handle, HANDLE_GRAPH_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult exec_node(CUgraphExec handle, CUgraphNode node, struct graph_node **out)
{
	struct graph_exec *e;
	struct graph_node *n;
	CUresult r = exec_get(handle, &e);

	if (r == CUDA_SUCCESS)
		r = node_get(node, &n);
	if (r != CUDA_SUCCESS)
		return r;
	*out = find_origin(e->graph, n->origin);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* False: there is a circle. Among nodes that could be next, the one added first is. */
static bool put_in_order(struct graph *g, struct graph_node **order)
{
	size_t done = 0, before;

	for (struct graph_node *n = g->nodes; n; n = n->next)
		n->waits = 0;
	do {
		before = done;
		for (struct graph_node *n = g->nodes; n; n = n->next) {
			bool ready = !n->waits;

			for (size_t i = 0; ready && i < n->n_deps; i++)
				ready = n->deps[i]->waits;
			if (!ready)
				continue;
			n->waits = 1;
			order[done++] = n;
		}
	} while (done > before);
	return done == g->n_nodes;
}

/* Launched in the order of its list from then on; so are its child graphs. */
static CUresult sort_nodes(struct graph *g)
{
	struct graph_node **order = calloc(g->n_nodes + 1, sizeof(struct graph_node *));
	struct graph *inner;
	CUresult r = order ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && !put_in_order(g, order))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		g->last = &g->nodes;
		for (size_t i = 0; i < g->n_nodes; i++) {
			*g->last = order[i];
			g->last = &order[i]->next;
		}
		*g->last = NULL;
	}
	free(order);
	for (struct graph_node *n = g->nodes; r == CUDA_SUCCESS && n; n = n->next) {
		for (size_t i = 0; r == CUDA_SUCCESS && (inner = node_inner(n, i)); i++)
			r = sort_nodes(inner);
	}
	return r;
}

static CUresult exec_create(CUgraph handle, cuuint64_t flags, struct graph_exec **out)
{
	struct graph_exec *e;
	struct graph *g;
	CUresult r;

	DRV_LOCKED();
	r = graph_get(handle, &g);
	if (r == CUDA_SUCCESS && (graph_is_captured(g) || !conditions_are_used(g) || !conditions_are_free(g, NULL)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	e = calloc(1, sizeof(*e));
	if (e)
		e->graph = graph_copy(g, true);
	r = e && e->graph ? sort_nodes(e->graph) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		r = graph_blocks_instantiate(&e->blocks, &g->blocks);
	if (r == CUDA_SUCCESS && handle_add(e, HANDLE_GRAPH_EXEC))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		conditions_give(e->graph, e);
		e->flags = flags;
		e->number = graph_next_number();
		*out = e;
		return r;
	}
	if (e && e->graph)
		graph_free(e->graph);
	if (e)
		graph_blocks_drop(&e->blocks); /* the graph has them, too */
	free(e);
	return r;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	struct graph_exec *e;
	CUevent done;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out || flags & ~(unsigned long long)(FLAGS | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = cuEventCreate(&done, CU_EVENT_DISABLE_TIMING);
	if (r == CUDA_SUCCESS)
		r = exec_create(graph, flags, &e);
	else
		return r;
	if (r != CUDA_SUCCESS) {
		cuEventDestroy_v2(done);
		return r;
	}
	e->done = done;
	*out = (CUgraphExec)e;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	if (node)
		*node = NULL;
	if (log && size)
		*log = '\0';
	return cuGraphInstantiateWithFlags(out, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
	return cuGraphInstantiate(out, graph, node, log, size);
}

/* Handles that no node asks. */
static bool lacks_nodes(CUgraph handle)
{
	struct graph *g;

	DRV_LOCKED();
	return graph_get(handle, &g) == CUDA_SUCCESS && !conditions_are_used(g);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUresult r = p ? cuGraphInstantiateWithFlags(out, graph, p->flags) : CUDA_ERROR_INVALID_VALUE;

	if (!p)
		return r;
	p->hErrNode_out = NULL;
	p->result_out = r == CUDA_SUCCESS	 ? CUDA_GRAPH_INSTANTIATE_SUCCESS :
			lacks_nodes(graph) ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED :
					     CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
	struct graph_exec *e;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = flags ? exec_get(handle, &e) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*flags = e->flags;
	return r;
}

/* What has been launched goes on: it is in the streams already. */
CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	struct graph_exec *e;
	CUevent done;
	CUresult r;

	DRIVER_CHECK();
	drv_lock();
	r = exec_get(handle, &e);
	if (r == CUDA_SUCCESS) {
		done = e->done;
		handle_remove(e);
		conditions_give(e->graph, NULL);
		graph_let_go(e->graph, e->launched ? done : NULL);
		graph_memory_end(graph_blocks_drop(&e->blocks));
		graph_free(e->graph);
		free(e);
	}
	drv_unlock();
	if (r == CUDA_SUCCESS)
		cuEventDestroy_v2(done);
	graph_memory_give();
	return r;
}

/* ---- launch */

static CUresult launch_memset(const CUDA_MEMSET_NODE_PARAMS *m, CUstream stream)
{
	if (m->elementSize == 1)
		return cuMemsetD2D8Async(m->dst, m->pitch, (unsigned char)m->value, m->width, m->height, stream);
	if (m->elementSize == 2)
		return cuMemsetD2D16Async(m->dst, m->pitch, (unsigned short)m->value, m->width, m->height, stream);
	return cuMemsetD2D32Async(m->dst, m->pitch, m->value, m->width, m->height, stream);
}

static CUresult launch_kernel(struct graph_kernel *k, CUstream stream)
{
	CUlaunchAttribute attributes[] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = k->options.cooperative },
		{ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		  .value.clusterDim = { k->options.cluster[0], k->options.cluster[1], k->options.cluster[2] } },
	};
	CUlaunchConfig config = { k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2], k->shared,
				  stream, attributes, k->options.cluster[0] ? 2 : 1 };

	return cuLaunchKernelEx(&config, k->function, k->params, NULL);
}

static CUresult launch_node(struct graph_node *n, CUstream stream)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return launch_kernel(&n->kernel, stream);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_node(&n->copy, stream);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return launch_memset(&n->memset, stream);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuLaunchHostFunc(stream, n->host.fn, n->host.userData);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return graph_launch_nodes(n->child, stream);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return conditional_launch(n, graph_launch_nodes, stream);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuEventRecord(n->event, stream);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuStreamWaitEvent(stream, n->event, 0);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return memory_launch(&n->memory, stream);
	default:
		return CUDA_SUCCESS;
	}
}

CUresult graph_launch_nodes(struct graph *g, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;

	for (struct graph_node *n = g->nodes; r == CUDA_SUCCESS && n; n = n->next) {
		if (!n->disabled)
			r = launch_node(n, stream);
	}
	return r;
}

/* Into a stream that captures a graph goes as a child graph. */
static CUresult capture_graph(struct graph_exec *e, CUstream stream)
{
	struct graph_node made = { .type = CU_GRAPH_NODE_TYPE_GRAPH };

	drv_lock();
	made.child = graph_copy(e->graph, false);
	if (made.child)
		graph_rename(made.child);
	drv_unlock();
	return made.child ? capture_put(stream, &made) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
	struct graph_exec *e;
	CUresult r;

	CONTEXT_ENTER(ctx);
	drv_lock();
	r = exec_get(handle, &e);
	drv_unlock();
	if (r != CUDA_SUCCESS)
		return r;
	if (capture_takes(stream))
		return e->blocks.count || graph_decides(e->graph) ? CUDA_ERROR_NOT_SUPPORTED : capture_graph(e, stream);
	r = graph_blocks_may_launch(&e->blocks, e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (r != CUDA_SUCCESS)
		return r;
	if (e->launched)
		r = cuStreamWaitEvent(stream, e->done, 0);
	if (r == CUDA_SUCCESS)
		r = conditions_begin(e->graph, stream);
	if (r == CUDA_SUCCESS)
		r = graph_launch_nodes(e->graph, stream);
	if (r == CUDA_SUCCESS)
		r = cuEventRecord(e->done, stream);
	if (r == CUDA_SUCCESS)
		graph_blocks_launched(&e->blocks);
	e->launched = true;
	return r;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream)
{
	struct graph_exec *e;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = exec_get(handle, &e);
	return r == CUDA_SUCCESS ? stream_get(ctx, stream, &s) : r;
}

/* ---- changes */

static CUresult find(CUgraphExec exec, CUgraphNode node, struct graph_node **out)
{
	CUresult r = exec_node(exec, node, out);

	if (r == CUDA_SUCCESS && (*out)->type != CU_GRAPH_NODE_TYPE_KERNEL && (*out)->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
	    (*out)->type != CU_GRAPH_NODE_TYPE_MEMSET)
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	struct graph_node *n;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = find(exec, node, &n);
	if (r == CUDA_SUCCESS)
		n->disabled = !enabled;
	return r;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	struct graph_node *n;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = enabled ? find(exec, node, &n) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*enabled = !n->disabled;
	return r;
}

struct difference {
	CUgraphExecUpdateResult result;
	struct graph_node *node;
};

static struct difference compare(const struct graph *have, struct graph *want);

static struct difference compare_nodes(const struct graph_node *a, struct graph_node *b)
{
	struct difference none = { CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL };

	if (a->type != b->type)
		return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, b };
	if (a->n_deps != b->n_deps)
		return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b };
	if (a->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && !memory_may_become(&a->memory, &b->memory))
		return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, b };
	for (size_t i = 0; i < a->n_deps; i++) {
		if (a->deps[i]->waits != b->deps[i]->waits)
			return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b };
	}
	if (a->type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
	    (a->conditional.kind != b->conditional.kind || a->conditional.size != b->conditional.size))
		return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, b };
	for (size_t i = 0; none.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && node_inner(a, i); i++)
		none = compare(node_inner(a, i), node_inner(b, i));
	return none;
}

static void number(struct graph_node *n)
{
	for (size_t i = 0; n; n = n->next)
		n->waits = i++;
}

/* Nodes are paired by their order; both lists are sorted alike. */
static struct difference compare(const struct graph *have, struct graph *want)
{
	struct difference d = { CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL };
	struct graph_node *a, *b;

	if (have->n_nodes != want->n_nodes)
		return (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL };
	number(have->nodes);
	number(want->nodes);
	for (a = have->nodes, b = want->nodes; a && d.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; a = a->next, b = b->next)
		d = compare_nodes(a, b);
	return d;
}

static struct graph_node *node_of(struct graph *g, uint64_t origin)
{
	struct graph_node *n = g->nodes;

	while (n && n->origin != origin)
		n = n->next;
	return n;
}

/* What is launched from now on is the other graph, whose nodes the old ones' handles then name. */
static void take_over(struct graph *have, struct graph *want)
{
	struct graph_node *a, *b;

	for (a = have->nodes, b = want->nodes; a; a = a->next, b = b->next) {
		b->origin = a->origin;
		b->disabled = a->disabled;
		for (size_t i = 0; node_inner(a, i); i++)
			take_over(node_inner(a, i), node_inner(b, i));
	}
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *out)
{
	struct graph *g, *want;
	struct graph_exec *e;
	struct difference d;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	DRV_LOCKED();
	r = exec_get(handle, &e);
	if (r == CUDA_SUCCESS)
		r = graph_get(graph, &g);
	if (r != CUDA_SUCCESS)
		return r;
	want = graph_copy(g, true);
	r = want ? sort_nodes(want) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && (e->blocks.count != g->blocks.count || (g->blocks.count && g->blocks.twin != &e->blocks))) {
		out->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED; /* memory of its own graph it may have, none other */
		graph_free(want);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	if (r == CUDA_SUCCESS && (!conditions_are_used(g) || !conditions_are_free(want, e)))
		r = CUDA_ERROR_INVALID_VALUE;
	d = r == CUDA_SUCCESS ? compare(e->graph, want) : (struct difference){ CU_GRAPH_EXEC_UPDATE_ERROR, NULL };
	out->result = d.result;
	if (d.node)
		out->errorNode = (CUgraphNode)node_of(g, d.node->origin);
	if (r == CUDA_SUCCESS && d.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		r = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	if (r == CUDA_SUCCESS) {
		take_over(e->graph, want);
		conditions_give(e->graph, NULL);
		conditions_give(want, e);
		graph_let_go(e->graph, e->launched ? e->done : NULL);
		graph_free(e->graph);
		e->graph = want;
	} else if (want) {
		graph_free(want);
	}
	return r;
}

/* As an update of all that is in the node. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraph child)
{
	struct graph *g, *want = NULL;
	struct graph_node *n;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = exec_node(handle, node, &n);
	if (r == CUDA_SUCCESS)
		r = n->type == CU_GRAPH_NODE_TYPE_GRAPH ? graph_get(child, &g) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && g->blocks.count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		want = graph_copy(g, true);
	if (r == CUDA_SUCCESS)
		r = want ? sort_nodes(want) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && compare(n->child, want).result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS) {
		take_over(n->child, want);
		graph_let_go(n->child, ((struct graph_exec *)handle)->launched ? ((struct graph_exec *)handle)->done : NULL);
		graph_free(n->child);
		n->child = want;
		want->parent = n;
	} else if (want) {
		graph_free(want);
	}
	return r;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info;
	CUresult r = node && result ? cuGraphExecUpdate_v2(exec, graph, &info) : CUDA_ERROR_INVALID_VALUE;

	if (!node || !result)
		return r;
	*node = info.errorNode;
	*result = info.result;
	return r;
}
