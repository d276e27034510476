/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes do: added to a graph, changed in one, changed in an executable one. The three differ in where, not in what. */
#include "graph_place.h"
#include "hosts.h"

#include <string.h>

enum { PARAMETERS = 12288 };

/* ---- kernels */

static CUresult put_kernel(const struct shim_place *p, const CUDA_KERNEL_NODE_PARAMS_v2 *k, CUgraphNode *out)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_kernel_request in = { SHIM_PLACE(p) };
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
	return shim_place_finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
					  size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	if (r == CUDA_SUCCESS && !nodeParams)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? put_kernel(&p, nodeParams, phGraphNode) : r;
}

static CUresult set_kernel(uint32_t how, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, how, exec, node);

	if (r == CUDA_SUCCESS && !params)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? put_kernel(&p, params, NULL) : r;
}

SHIM_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	return set_kernel(SHIM_SET, NULL, hNode, nodeParams);
}

SHIM_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
						    const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams)
{
	return set_kernel(SHIM_SET_EXEC, hGraphExec, hNode, nodeParams);
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

	return set_kernel(SHIM_SET, NULL, hNode, longer(nodeParams, &room));
}

SHIM_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS_v2 room;

	return set_kernel(SHIM_SET_EXEC, hGraphExec, hNode, longer(nodeParams, &room));
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

static struct shim_object *owner(const struct shim_place *p)
{
	return p->how == SHIM_SET_EXEC ? shim_object_get(SHIM_GRAPH_EXEC, p->exec) : shim_graph_all(p->graph);
}

static CUresult put_number(const struct shim_place *p, uint64_t number, CUgraphNode *out)
{
	struct vg_graph_host_request in = { SHIM_PLACE(p), .number = number };
	struct vg_graph_host_reply reply;
	CUresult r = number ? vg_send_graph_host(&in, &reply) : CUDA_ERROR_OUT_OF_MEMORY;

	return shim_place_finish(p, r, reply.added, out);
}

/* Between the device and the program's memory, or within that. */
static CUresult put_host_copy(const struct shim_place *p, const struct cuda_copy *c, bool to_device, bool from_device,
			      CUgraphNode *out)
{
	const struct cuda_side *device = to_device ? &c->to : &c->from;
	struct shim_host host = shim_host_copy(p->context, c, to_device, from_device);
	struct vg_graph_host_copy_request in = { SHIM_PLACE(p) };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_host_copy_reply reply;
	struct shim_object *graph = owner(p);
	CUresult r;

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (shim_graph_is_inside(p->graph))
		return shim_unsupported("a copy with host memory in the body of a conditional node", &told);
	in.number = shim_host_keep(graph, &host);
	if (!in.number || host.kind == SHIM_HOST_BOTH)
		return put_number(p, in.number, out);
	in.to_host = !to_device;
	in.address = device->base, in.pitch = device->pitch, in.slice = device->slice;
	in.width = c->width, in.rows = c->rows, in.slices = c->slices;
	r = vg_send_graph_host_copy(&in, &reply);
	return shim_place_finish(p, r, reply.added, out);
}

static CUresult put_copy(const struct shim_place *p, const CUDA_MEMCPY3D *params, CUgraphNode *out)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct vg_graph_copy_request in = { SHIM_PLACE(p) };
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
	return shim_place_finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct shim_place p;
	CUresult r = shim_place_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_copy(&p, copyParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_copy(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET_EXEC, hGraphExec, hNode);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_copy(&p, copyParams, NULL) : r;
}

/* ---- fills */

static CUresult put_memset(const struct shim_place *p, const CUDA_MEMSET_NODE_PARAMS *m, CUgraphNode *out)
{
	struct vg_graph_memset_request in = { SHIM_PLACE(p) };
	struct vg_graph_memset_reply reply;
	CUresult r;

	if (!m || !m->width || !m->height)
		return CUDA_ERROR_INVALID_VALUE;
	in.address = m->dst, in.pitch = m->pitch, in.value = m->value, in.element = m->elementSize;
	in.width = m->width, in.rows = m->height;
	r = vg_send_graph_memset(&in, &reply);
	return shim_place_finish(p, r, reply.added, out);
}

SHIM_API CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct shim_place p;
	CUresult r = shim_place_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_memset(&p, memsetParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_memset(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
						 const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET_EXEC, hGraphExec, hNode);

	(void)ctx;
	return r == CUDA_SUCCESS ? put_memset(&p, memsetParams, NULL) : r;
}

/* ---- events */

static CUresult put_event(const struct shim_place *p, CUevent event, bool waits, CUgraphNode *out)
{
	struct vg_graph_event_request in = { SHIM_PLACE(p), .event = (uint64_t)event, .waits = waits };
	struct vg_graph_event_reply reply;
	CUresult r;

	if (!shim_object_get(SHIM_EVENT, in.event))
		return CUDA_ERROR_INVALID_VALUE;
	r = vg_send_graph_event(&in, &reply);
	return shim_place_finish(p, r, reply.added, out);
}

static CUresult add_event(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event,
			  bool waits)
{
	struct shim_place p;
	CUresult r = shim_place_add(&p, out, graph, dependencies, count);

	return r == CUDA_SUCCESS ? put_event(&p, event, waits, out) : r;
}

static CUresult set_event(uint32_t how, CUgraphExec exec, CUgraphNode node, CUevent event, bool waits)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, how, exec, node);

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
	return set_event(SHIM_SET, NULL, hNode, event, false);
}

SHIM_API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_event(SHIM_SET, NULL, hNode, event, true);
}

SHIM_API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(SHIM_SET_EXEC, hGraphExec, hNode, event, false);
}

SHIM_API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_event(SHIM_SET_EXEC, hGraphExec, hNode, event, true);
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
	struct shim_place p;
	CUresult r = shim_place_add(&p, out, graph, dependencies, count);
	struct vg_graph_child_request in;

	if (r != CUDA_SUCCESS)
		return r;
	in = (struct vg_graph_child_request){ p.context, p.graph, p.sent, child };
	r = vg_send_graph_child(&in, &reply);
	if (r == CUDA_ERROR_NOT_SUPPORTED)
		return shim_unsupported("a child graph with host memory twice in one graph", &told);
	if (r == CUDA_SUCCESS && child)
		r = share(shim_graph_all(child), shim_graph_all(p.graph));
	return shim_place_finish(&p, r, reply.added, out);
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

	if (r == CUDA_SUCCESS && shim_graph_has_memory(child))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? add_child(phGraphNode, hGraph, dependencies, numDependencies, child) : r;
}

/* ---- functions of the program */

static CUresult put_host(const struct shim_place *p, const CUDA_HOST_NODE_PARAMS *params, CUgraphNode *out)
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
	struct shim_place p;
	CUresult r = shim_place_add(&p, phGraphNode, hGraph, dependencies, numDependencies);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, phGraphNode) : r;
}

SHIM_API CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET, NULL, hNode);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, NULL) : r;
}

SHIM_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					       const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct shim_place p;
	CUresult r = shim_place_set(&p, SHIM_SET_EXEC, hGraphExec, hNode);

	return r == CUDA_SUCCESS ? put_host(&p, nodeParams, NULL) : r;
}
