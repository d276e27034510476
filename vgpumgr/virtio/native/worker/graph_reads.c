/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: what a node does, and attributes of its kernel. What the guest has made is told by the guest's own handles: no
 * pointer of this process, and nothing that one of its libraries put into a captured graph, gets out.
 */
#include <string.h>

#include <codec/memory_wire.h>

#include "mathematics.h"
#include "session.h"
#include "vg_worker.h"

/* What the graph holds, by the driver's handle; NULL: it isn't the guest's. */
static struct wk_object *find_used(const struct wk_object *graph, enum wk_kind kind, const void *driver)
{
	const struct wk_holds *h = &wk_graph_all(graph)->holds;

	for (size_t i = 0; i < h->count; i++)
		if (h->at[i]->kind == kind && h->at[i]->driver == driver)
			return h->at[i];
	return NULL;
}

static CUresult read_parameters(const struct wk_object *function, void *const *values, struct vg_graph_node_read_reply *out)
{
	if (function->parameters_bytes > sizeof(out->parameters) || (function->parameters_count && !values))
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(out->parameters, 0, function->parameters_bytes);
	for (uint32_t i = 0; i < function->parameters_count; i++)
		memcpy(out->parameters + function->parameters[i].offset, values[i], function->parameters[i].size);
	out->parameters_length = function->parameters_bytes;
	return CUDA_SUCCESS;
}

static CUresult read_kernel(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
			    struct vg_graph_node_read_reply *out)
{
	CUDA_KERNEL_NODE_PARAMS_v2 k = { .func = NULL };
	struct wk_object *function;
	CUresult r = wk_driver.cuGraphKernelNodeGetParams_v2(node, &k);

	if (r != CUDA_SUCCESS)
		return r;
	function = find_used(graph, WK_FUNCTION, k.func ? (void *)k.func : (void *)k.kern);
	out->object = function ? wk_handle_of(c->session, function) : 0;
	out->grid_x = k.gridDimX, out->grid_y = k.gridDimY, out->grid_z = k.gridDimZ;
	out->block_x = k.blockDimX, out->block_y = k.blockDimY, out->block_z = k.blockDimZ;
	out->shared_bytes = k.sharedMemBytes;
	return function ? read_parameters(function, k.kernelParams, out) : CUDA_SUCCESS;
}

static bool is_device(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

/* Where a side begins: its base and offsets. */
static uint64_t begin_of(uint64_t base, size_t x, size_t y, size_t z, size_t pitch, size_t height)
{
	return base + x + (y + z * height) * pitch;
}

/*
 * What a library has put into a graph may use memory of its own. Without one all of a graph is the guest's, and is named as it
 * was given, also where that memory has been freed meanwhile.
 */
static CUresult check_address(struct wk_call *c, const struct wk_object *graph, uint64_t address)
{
	struct wk_object *context = c->context;
	CUresult r;

	if (!wk_math_loaded())
		return CUDA_SUCCESS;
	c->context = graph->context;
	r = wk_check_range(c, address, 1, 1, 1, 0);
	c->context = context;
	wk_unpin(c);
	return r == CUDA_SUCCESS ? r : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult read_copy(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
			  struct vg_graph_node_read_reply *out)
{
	CUDA_MEMCPY3D m = { .WidthInBytes = 0 };
	CUresult r = wk_driver.cuGraphMemcpyNodeGetParams(node, &m);

	if (r == CUDA_SUCCESS && !(is_device(m.srcMemoryType) && is_device(m.dstMemoryType)))
		r = CUDA_ERROR_NOT_SUPPORTED; /* memory of this process */
	if (r == CUDA_SUCCESS)
		r = check_address(c, graph, m.dstDevice);
	if (r == CUDA_SUCCESS)
		r = check_address(c, graph, m.srcDevice);
	if (r != CUDA_SUCCESS)
		return r;
	out->destination = begin_of(m.dstDevice, m.dstXInBytes, m.dstY, m.dstZ, m.dstPitch, m.dstHeight);
	out->source = begin_of(m.srcDevice, m.srcXInBytes, m.srcY, m.srcZ, m.srcPitch, m.srcHeight);
	out->destination_pitch = m.dstPitch, out->destination_slice = m.dstPitch * m.dstHeight;
	out->source_pitch = m.srcPitch, out->source_slice = m.srcPitch * m.srcHeight;
	out->width = m.WidthInBytes, out->rows = m.Height, out->slices = m.Depth;
	return CUDA_SUCCESS;
}

static CUresult read_fill(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
			  struct vg_graph_node_read_reply *out)
{
	CUDA_MEMSET_NODE_PARAMS m = { .dst = 0 };
	CUresult r = wk_driver.cuGraphMemsetNodeGetParams(node, &m);

	if (r == CUDA_SUCCESS)
		r = check_address(c, graph, m.dst);
	if (r != CUDA_SUCCESS)
		return r;
	out->destination = m.dst, out->destination_pitch = m.pitch;
	out->value = m.value, out->element = m.elementSize;
	out->width = m.width, out->rows = m.height;
	return r;
}

static CUresult read_event(struct wk_call *c, const struct wk_object *graph, CUgraphNode node, bool waits,
			   struct vg_graph_node_read_reply *out)
{
	CUevent event = NULL;
	CUresult r = waits ? wk_driver.cuGraphEventWaitNodeGetEvent(node, &event) :
			     wk_driver.cuGraphEventRecordNodeGetEvent(node, &event);
	struct wk_object *used = r == CUDA_SUCCESS ? find_used(graph, WK_EVENT, event) : NULL;

	out->object = used ? wk_handle_of(c->session, used) : 0;
	return r;
}

static uint64_t find_context(struct wk_session *s, const void *driver)
{
	const struct wk_table *t = &s->tables[WK_CONTEXT];
	struct wk_object *found WK_HELD = NULL;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < t->count && !found; i++) {
		if (t->slots[i].object && t->slots[i].object->driver == driver) {
			found = t->slots[i].object;
			wk_hold_again(found);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found ? wk_handle_of(s, found) : 0;
}

static CUresult read_memory(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
			    struct vg_graph_node_read_reply *out)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .count = 0 };
	uint64_t word[VG_MEMORY_WORDS];
	struct cuda_memory_operation m;
	CUresult r = wk_driver.cuGraphBatchMemOpNodeGetParams(node, &params);

	if (r == CUDA_SUCCESS && params.count > CUDA_MEMORY_OPERATIONS)
		r = CUDA_ERROR_NOT_SUPPORTED;
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < params.count; i++) {
		r = cuda_read_memory_operation(&params.paramArray[i], false, &m);
		if (r == CUDA_SUCCESS && m.bytes)
			r = check_address(c, graph, m.address);
		vg_pack_memory_operation(&m, word);
		memcpy(out->parameters + i * sizeof(word), word, sizeof(word));
	}
	out->parameters_length = r == CUDA_SUCCESS ? params.count * sizeof(word) : 0;
	out->object = r == CUDA_SUCCESS ? find_context(c->session, params.ctx) : 0;
	return r;
}

static CUresult read_conditional(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
				 struct vg_graph_node_read_reply *out)
{
	const struct wk_conditional *conditional = wk_conditional_of(graph->graph, node);

	if (!conditional)
		return CUDA_ERROR_NOT_SUPPORTED;
	out->destination = conditional->condition;
	out->value = conditional->kind, out->element = conditional->count;
	out->object = find_context(c->session, conditional->context);
	return CUDA_SUCCESS;
}

static CUresult read_node(struct wk_call *c, const struct wk_object *graph, CUgraphNode node,
			  struct vg_graph_node_read_reply *out)
{
	struct wk_object *host;
	CUgraphNodeType type = 0;
	CUresult r = wk_driver.cuGraphNodeGetType(node, &type);

	if (r != CUDA_SUCCESS)
		return r;
	host = type == CU_GRAPH_NODE_TYPE_HOST || type == CU_GRAPH_NODE_TYPE_GRAPH ? wk_host_of(node, type) : NULL;
	out->type = host && type == CU_GRAPH_NODE_TYPE_GRAPH ? CU_GRAPH_NODE_TYPE_MEMCPY : type;
	out->number = host ? host->number : 0;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return read_kernel(c, graph, node, out);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return read_copy(c, graph, node, out);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return read_fill(c, graph, node, out);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return read_memory(c, graph, node, out);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return read_event(c, graph, node, type == CU_GRAPH_NODE_TYPE_WAIT_EVENT, out);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return read_conditional(c, graph, node, out);
	default:
		return CUDA_SUCCESS;
	}
}

CUresult wk_do_graph_node_read(struct wk_call *c, const struct vg_graph_node_read_request *in,
			       struct vg_graph_node_read_reply *out)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUgraphNode node;
	CUresult r = wk_graph_use(c, in->graph, &use);

	if (r == CUDA_SUCCESS)
		r = wk_node_of(use.graph, in->node, &node);
	return r == CUDA_SUCCESS ? read_node(c, use.graph, node, out) : r;
}

/* ---- attributes; one with a handle would name something of this process: there are none */

static CUresult kernel_of(const struct wk_object *graph, uint32_t number, CUgraphNode *node)
{
	CUgraphNodeType type;
	CUresult r = wk_node_of(graph, number, node);

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphNodeGetType(*node, &type);
	return r == CUDA_SUCCESS && type != CU_GRAPH_NODE_TYPE_KERNEL ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult wk_do_graph_kernel_attribute(struct wk_call *c, const struct vg_graph_kernel_attribute_request *in,
				      struct vg_graph_kernel_attribute_reply *out)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUkernelNodeAttrValue value = { .pad = { 0 } };
	CUgraphNode node;
	CUresult r = in->set > 1 || in->value.length > sizeof(value) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	if (r == CUDA_SUCCESS && in->value.length)
		memcpy(&value, in->value.data, in->value.length);
	if (r == CUDA_SUCCESS)
		r = cuda_check_kernel_attribute((CUkernelNodeAttrID)in->attribute, in->set ? &value : NULL);
	if (r == CUDA_SUCCESS)
		r = wk_graph_use(c, in->graph, &use);
	if (r == CUDA_SUCCESS)
		r = kernel_of(use.graph, in->node, &node);
	if (r != CUDA_SUCCESS)
		return r;
	r = in->set ? wk_driver.cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)in->attribute, &value) :
		      wk_driver.cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)in->attribute, &value);
	out->value_length = sizeof(value);
	memcpy(out->value, &value, sizeof(value));
	return r;
}

CUresult wk_do_graph_kernel_attributes(struct wk_call *c, const struct vg_graph_kernel_attributes_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	struct wk_object *other WK_HELD = NULL;
	const struct wk_object *from;
	CUgraphNode a, b;
	CUresult r = wk_graph_use(c, in->graph, &use);

	from = use.graph;
	if (r == CUDA_SUCCESS && in->from_graph != in->graph) {
		r = use.locked ? CUDA_ERROR_NOT_SUPPORTED : wk_graph_hold(c, in->from_graph, &other);
		from = other;
	}
	if (r == CUDA_SUCCESS)
		r = kernel_of(use.graph, in->node, &a);
	if (r == CUDA_SUCCESS)
		r = kernel_of(from, in->from_node, &b);
	return r == CUDA_SUCCESS ? wk_driver.cuGraphKernelNodeCopyAttributes(a, b) : r;
}

/* ---- child graphs and bodies: the driver's own, below the graph that their node is in */

/* Two that number the same nodes would not know what the other destroys. */
static pthread_mutex_t children = PTHREAD_MUTEX_INITIALIZER;

/* `which` of the node's graphs; WK_EVERY_NODE: any. */
static uint64_t find_child(struct wk_session *s, const struct wk_object *graph, uint32_t place, uint32_t which)
{
	struct wk_object *found WK_HELD = NULL;

	pthread_mutex_lock(&s->lock);
	for (struct wk_object *o = graph->owned; o && !found; o = o->next) {
		if (o->kind == WK_GRAPH && o->graph->place == place && (which == WK_EVERY_NODE || o->graph->which == which)) {
			found = o;
			wk_hold_again(found);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return found ? wk_handle_of(s, found) : 0;
}

void wk_graph_drop_child(struct wk_call *c, const struct wk_object *graph, uint32_t place)
{
	uint64_t handle;

	while ((handle = find_child(c->session, graph, place, WK_EVERY_NODE)))
		wk_remove(c, WK_GRAPH, handle);
}

static CUresult put_child(struct wk_call *c, uint64_t handle, struct wk_object *graph, CUgraph driver, uint32_t place,
			  uint32_t which, bool body)
{
	struct wk_object *o = wk_object_new(WK_GRAPH, graph, driver, 0);
	CUresult r = o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!o)
		return r;
	o->lent = true;
	o->graph = wk_graph_new(0, NULL);
	r = o->graph ? wk_graph_number(o->graph, driver) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		wk_release(o);
		return r;
	}
	o->graph->place = place;
	o->graph->which = which;
	o->graph->body = body;
	return wk_put(c, handle, o);
}

CUresult wk_do_graph_child_graph(struct wk_call *c, const struct vg_graph_child_graph_request *in)
{
	struct wk_object *graph WK_HELD = NULL;
	CUgraphNode node;
	CUgraphNodeType type;
	CUgraph child;
	CUresult r = wk_graph_hold(c, in->graph, &graph);

	if (r == CUDA_SUCCESS)
		r = wk_node_of(graph, in->node, &node);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphNodeGetType(node, &type);
	if (r == CUDA_SUCCESS && (type != CU_GRAPH_NODE_TYPE_GRAPH || wk_host_of(node, type)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphChildGraphNodeGetGraph(node, &child);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&children);
	r = find_child(c->session, graph, in->node, 0) ? CUDA_ERROR_INVALID_VALUE :
							 put_child(c, in->created, graph, child, in->node, 0, false);
	pthread_mutex_unlock(&children);
	return r;
}

CUresult wk_do_graph_body(struct wk_call *c, const struct vg_graph_body_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	const struct wk_conditional *conditional = NULL;
	CUgraphNode node;
	CUresult r = wk_graph_use(c, in->graph, &use);

	if (r == CUDA_SUCCESS)
		r = wk_node_of(use.graph, in->node, &node);
	if (r == CUDA_SUCCESS)
		conditional = wk_conditional_of(use.graph->graph, node);
	if (r != CUDA_SUCCESS || !conditional || in->body >= conditional->count)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&children);
	r = find_child(c->session, use.graph, in->node, in->body) ?
		    CUDA_ERROR_INVALID_VALUE :
		    put_child(c, in->created, use.graph, conditional->bodies[in->body], in->node, in->body, true);
	pthread_mutex_unlock(&children);
	return r;
}
