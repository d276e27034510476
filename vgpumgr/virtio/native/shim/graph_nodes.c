/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes do: added to a graph, changed in one, changed in an executable one. The three differ in where, not in what. */
#include "graph.h"
#include "hosts.h"

#include <string.h>

enum { ADD, SET, SET_EXEC };
enum { AT_ONCE = 256, PARAMETERS = 12288 };

/* Where a node is to be: the first fields of the requests. */
struct place {
	uint64_t context, graph, exec;
	uint32_t how, number;
	const CUgraphNode *more; /* dependencies that one frame does not hold */
	size_t count;
	uint32_t dependencies[AT_ONCE];
	struct vg_bytes sent;
};

static CUresult to_add(struct place *p, CUgraphNode *out, CUgraph hGraph, const CUgraphNode *dependencies, size_t count)
{
	size_t first = count < AT_ONCE ? count : AT_ONCE;
	struct shim_node node;
	CUresult r = shim_enter(&p->context);

	p->how = ADD;
	p->exec = 0;
	p->number = 0;
	if (r == CUDA_SUCCESS && (!out || (count && !dependencies)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_graph(hGraph, &p->graph);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = shim_node(dependencies[i], &node);
		if (r == CUDA_SUCCESS && node.graph != p->graph)
			r = CUDA_ERROR_INVALID_VALUE;
		if (i < first)
			p->dependencies[i] = node.number;
	}
	p->sent = (struct vg_bytes){ p->dependencies, 4 * first };
	p->more = count ? dependencies + first : NULL;
	p->count = count - first;
	return r;
}

/* `exec` NULL: of the graph itself. */
static CUresult to_set(struct place *p, uint32_t how, CUgraphExec exec, CUgraphNode hNode)
{
	struct shim_node node;
	CUresult r = shim_enter(&p->context);

	*p = (struct place){ .context = p->context, .how = how };
	if (r == CUDA_SUCCESS && how == SET_EXEC)
		r = shim_graph_exec(exec, &p->exec);
	if (r == CUDA_SUCCESS)
		r = shim_node(hNode, &node);
	if (r != CUDA_SUCCESS)
		return r;
	p->graph = node.graph;
	p->number = node.number;
	return CUDA_SUCCESS;
}

/* A new node waits for the dependencies that are left, too. */
static CUresult finish(const struct place *p, CUresult r, uint32_t number, CUgraphNode *out)
{
	CUgraphNode node = shim_node_handle(p->graph, number);

	if (r != CUDA_SUCCESS || p->how != ADD)
		return r;
	for (size_t i = 0; r == CUDA_SUCCESS && i < p->count; i++)
		r = shim_edges(p->context, p->graph, &p->more[i], &node, 1, false);
	if (r == CUDA_SUCCESS)
		*out = node;
	else
		cuGraphDestroyNode(node);
	return r;
}

#define PLACE(p)                                                                                       \
	.context = (p)->context, .graph = (p)->graph, .exec = (p)->exec, .how = (p)->how, .node = (p)->number, \
	.dependencies = (p)->sent

/* ---- kernels */

static CUresult put_kernel(const struct place *p, const CUDA_KERNEL_NODE_PARAMS_v2 *k, CUgraphNode *out)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_kernel_request in = { PLACE(p) };
	CUlaunchConfig c = { .gridDimX = 0 };
	struct vg_graph_kernel_reply reply;
	uint8_t room[32768];
	CUresult r;

	c.gridDimX = in.grid_x = k->gridDimX, c.gridDimY = in.grid_y = k->gridDimY, c.gridDimZ = in.grid_z = k->gridDimZ;
	c.blockDimX = in.block_x = k->blockDimX, c.blockDimY = in.block_y = k->blockDimY;
	c.blockDimZ = in.block_z = k->blockDimZ;
	c.sharedMemBytes = in.shared_bytes = k->sharedMemBytes;
	r = shim_pack_launch(&c, k->func ? k->func : (CUfunction)k->kern, k->kernelParams, k->extra, room, sizeof(room),
			     &in.function, &in.parameters);
	if (r != CUDA_SUCCESS)
		return r;
	if (in.parameters.length > PARAMETERS)
		return shim_unsupported("a kernel node with large parameters", &told);
	r = vg_send_graph_kernel(&in, &reply);
	return finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					  size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	struct place p;
	CUresult r = to_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	if (r == CUDA_SUCCESS && !nodeParams)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? put_kernel(&p, nodeParams, phGraphNode) : r;
}

static CUresult set_kernel(uint32_t how, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	struct place p;
	CUresult r = to_set(&p, how, exec, node);

	if (r == CUDA_SUCCESS && !params)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? put_kernel(&p, params, NULL) : r;
}

SHIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	return set_kernel(SET, NULL, hNode, nodeParams);
}

SHIM_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
						    const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	return set_kernel(SET_EXEC, hGraphExec, hNode, nodeParams);
}

/* The first version lacks the two last fields. */
static const CUDA_KERNEL_NODE_PARAMS_v2 *longer(const CUDA_KERNEL_NODE_PARAMS_v1 *p, CUDA_KERNEL_NODE_PARAMS_v2 *room)
{
	memset(room, 0, sizeof(*room));
	if (p)
		memcpy(room, p, sizeof(*p));
	return p ? room : NULL;
}

SHIM_API CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 room;

	return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, longer(nodeParams, &room));
}

SHIM_API CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 room;

	return set_kernel(SET, NULL, hNode, longer(nodeParams, &room));
}

SHIM_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 room;

	return set_kernel(SET_EXEC, hGraphExec, hNode, longer(nodeParams, &room));
}

/* ---- copies; what is mapped on the device too is memory of the device */

static CUresult check_side(const struct cuda_copy *copy, const struct cuda_side *side, bool *device)
{
	size_t bytes;
	CUresult r = cuda_copy_extent(copy, side, &bytes);

	*device = side->type == CU_MEMORYTYPE_DEVICE || shim_range_find(SHIM_RANGE_DEVICE, side->base, &(struct shim_range){ 0 });
	if (r != CUDA_SUCCESS)
		return r;
	if (*device)
		return shim_check_range(side->base, bytes, 1, 1, 0);
	return !side->base || side->base + bytes < side->base ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static struct shim_object *owner(const struct place *p)
{
	return p->how == SET_EXEC ? shim_object_get(SHIM_GRAPH_EXEC, p->exec) : shim_graph_all(p->graph);
}

static CUresult put_number(const struct place *p, uint64_t number, CUgraphNode *out)
{
	struct vg_graph_host_request in = { PLACE(p), .number = number };
	struct vg_graph_host_reply reply;
	CUresult r = number ? vg_send_graph_host(&in, &reply) : CUDA_ERROR_OUT_OF_MEMORY;

	return finish(p, r, reply.added, out);
}

/* Between the device and the program's memory, or within that. */
static CUresult put_host_copy(const struct place *p, const struct cuda_copy *c, bool to_device, bool from_device,
			      CUgraphNode *out)
{
	const struct cuda_side *device = to_device ? &c->to : &c->from;
	struct shim_host host = shim_host_copy(p->context, c, to_device, from_device);
	struct vg_graph_host_copy_request in = { PLACE(p) };
	struct vg_graph_host_copy_reply reply;
	struct shim_object *graph = owner(p);
	CUresult r;

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	in.number = shim_host_keep(graph, &host);
	if (!in.number || host.kind == SHIM_HOST_BOTH)
		return put_number(p, in.number, out);
	in.to_host = !to_device;
	in.address = device->base, in.pitch = device->pitch, in.slice = device->slice;
	in.width = c->width, in.rows = c->rows, in.slices = c->slices;
	r = vg_send_graph_host_copy(&in, &reply);
	return finish(p, r, reply.added, out);
}

static CUresult put_copy(const struct place *p, const CUDA_MEMCPY3D *params, CUgraphNode *out)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_copy_request in = { PLACE(p) };
	struct vg_graph_copy_reply reply;
	bool to_device, from_device;
	struct cuda_copy c;
	CUresult r = cuda_read_copy_3d(params, &c);

	if (r == CUDA_SUCCESS && cuda_copy_is_empty(&c))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && (c.to.type == CU_MEMORYTYPE_ARRAY || c.from.type == CU_MEMORYTYPE_ARRAY))
		return shim_unsupported("a copy with an array in a graph", &told);
	if (r == CUDA_SUCCESS)
		r = check_side(&c, &c.to, &to_device);
	if (r == CUDA_SUCCESS)
		r = check_side(&c, &c.from, &from_device);
	if (r != CUDA_SUCCESS)
		return r;
	if (!to_device || !from_device)
		return put_host_copy(p, &c, to_device, from_device, out);
	in.destination = c.to.base, in.destination_pitch = c.to.pitch, in.destination_slice = c.to.slice;
	in.source = c.from.base, in.source_pitch = c.from.pitch, in.source_slice = c.from.slice;
	in.width = c.width, in.rows = c.rows, in.slices = c.slices;
	r = vg_send_graph_copy(&in, &reply);
	return finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct place p;
	CUresult r = to_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_copy(&p, copyParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct place p;
	CUresult r = to_set(&p, SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_copy(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct place p;
	CUresult r = to_set(&p, SET_EXEC, hGraphExec, hNode);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_copy(&p, copyParams, NULL) : r;
}

/* ---- fills */

static CUresult put_memset(const struct place *p, const CUDA_MEMSET_NODE_PARAMS *m, CUgraphNode *out)
{
	struct vg_graph_memset_request in = { PLACE(p) };
	struct vg_graph_memset_reply reply;
	CUresult r;

	if (!m || !m->width || !m->height)
		return CUDA_ERROR_INVALID_VALUE;
	in.address = m->dst, in.pitch = m->pitch, in.value = m->value, in.element = m->elementSize;
	in.width = m->width, in.rows = m->height;
	r = vg_send_graph_memset(&in, &reply);
	return finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct place p;
	CUresult r = to_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_memset(&p, memsetParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct place p;
	CUresult r = to_set(&p, SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_memset(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct place p;
	CUresult r = to_set(&p, SET_EXEC, hGraphExec, hNode);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_memset(&p, memsetParams, NULL) : r;
}

/* ---- events */

static CUresult put_event(const struct place *p, CUevent event, bool waits, CUgraphNode *out)
{
	struct vg_graph_event_request in = { PLACE(p), .event = (uint64_t)event, .waits = waits };
	struct vg_graph_event_reply reply;
	CUresult r;

	if (!shim_object_get(SHIM_EVENT, in.event))
		return CUDA_ERROR_INVALID_VALUE;
	r = vg_send_graph_event(&in, &reply);
	return finish(p, r, reply.added, out);
}

static CUresult add_event(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event,
			  bool waits)
{
	struct place p;
	CUresult r = to_add(&p, out, graph, dependencies, count);

	return r == CUDA_SUCCESS ? put_event(&p, event, waits, out) : r;
}

static CUresult set_event(uint32_t how, CUgraphExec exec, CUgraphNode node, CUevent event, bool waits)
{
	struct place p;
	CUresult r = to_set(&p, how, exec, node);

	return r == CUDA_SUCCESS ? put_event(&p, event, waits, NULL) : r;
}

SHIM_API CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					    size_t numDependencies, CUevent event)
{
	return add_event(phGraphNode, hGraph, dependencies, numDependencies, event, false);
}

SHIM_API CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					  size_t numDependencies, CUevent event)
{
	return add_event(phGraphNode, hGraph, dependencies, numDependencies, event, true);
}

SHIM_API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_event(SET, NULL, hNode, event, false);
}

SHIM_API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_event(SET, NULL, hNode, event, true);
}

SHIM_API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(SET_EXEC, hGraphExec, hNode, event, false);
}

SHIM_API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(SET_EXEC, hGraphExec, hNode, event, true);
}

/* ---- nothing, and other graphs */

/* Either may be gone by now: another thread's mistake. */
static CUresult share(const struct shim_object *from, struct shim_object *to)
{
	return from && to ? shim_hosts_share(from, to) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count, uint64_t child)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_child_reply reply;
	struct place p;
	CUresult r = to_add(&p, out, graph, dependencies, count);
	struct vg_graph_child_request in;

	if (r != CUDA_SUCCESS)
		return r;
	in = (struct vg_graph_child_request){ p.context, p.graph, p.sent, child };
	r = vg_send_graph_child(&in, &reply);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("a child graph with host memory twice in one graph", &told);
	if (r == CUDA_SUCCESS && child)
		r = share(shim_graph_all(child), shim_graph_all(p.graph));
	return finish(&p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				      size_t numDependencies)
{
	return add_child(phGraphNode, hGraph, dependencies, numDependencies, 0);
}

SHIM_API CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					   size_t numDependencies, CUgraph childGraph)
{
	uint64_t child;
	CUresult r = shim_graph(childGraph, &child);

	return r == CUDA_SUCCESS ? add_child(phGraphNode, hGraph, dependencies, numDependencies, child) : r;
}

/* ---- functions of the program */

static CUresult put_host(const struct place *p, const CUDA_HOST_NODE_PARAMS *params, CUgraphNode *out)
{
	struct shim_host host = { .kind = SHIM_HOST_FUNCTION, .context = p->context };
	struct shim_object *graph = owner(p);

	if (!params || !params->fn || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	host.function = params->fn;
	host.data = params->userData;
	return put_number(p, shim_host_keep(graph, &host), out);
}

SHIM_API CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				     size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct place p;
	CUresult r = to_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct place p;
	CUresult r = to_set(&p, SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					       const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct place p;
	CUresult r = to_set(&p, SET_EXEC, hGraphExec, hNode);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, NULL) : r;
}
