/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What graphs need of the guest at each launch: its functions, and its memory for copies. A function is a host node that
 * holds the graph at a gate. A copy is a child graph of a gate and a copy between the device and memory that is kept here
 * for it: while the gate is reached, the guest fills that memory or fetches it. So the driver is called by nobody while
 * it waits for the guest.
 */
#include <stdlib.h>

#include "session.h"

CUresult wk_check_box(struct wk_call *c, const struct wk_box *b)
{
	uint64_t down, deep, bytes;

	if (!b->width || !b->rows || !b->slices || (b->rows > 1 && b->pitch < b->width) ||
	    (b->slices > 1 && (!b->pitch || b->slice % b->pitch || b->slice / b->pitch < b->rows)))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(b->rows - 1, b->pitch, &down) || __builtin_mul_overflow(b->slices - 1, b->slice, &deep) ||
	    __builtin_add_overflow(down, deep, &bytes) || __builtin_add_overflow(bytes, b->width, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return wk_check_range(c, b->address, bytes, 1, 1, 0);
}

static uint64_t packed(const struct wk_box *b)
{
	uint64_t bytes;

	return __builtin_mul_overflow(b->width, b->rows, &bytes) || __builtin_mul_overflow(bytes, b->slices, &bytes) ?
		       UINT64_MAX :
		       bytes;
}

static CUresult stage(struct wk_object *host, uint64_t bytes)
{
	void *at;
	CUresult r;

	if (!wk_staging_charge(bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuMemHostAlloc(&at, bytes, 0); /* pinned: what is in it is read when a copy runs, not at the launch */
	if (r != CUDA_SUCCESS) {
		wk_staging_refund(bytes);
		return r;
	}
	host->address = (uint64_t)at;
	host->bytes = bytes;
	return CUDA_SUCCESS;
}

static struct wk_object *find_same(const struct wk_holds *holds, uint64_t number, uint64_t bytes)
{
	for (size_t i = 0; i < holds->count; i++) {
		struct wk_object *o = holds->at[i];

		if (o->kind == WK_HOST && o->number == number && o->bytes == bytes)
			return o;
	}
	return NULL;
}

/* With its event, which says that no launch uses it any more. */
static CUresult make_host(struct wk_call *c, struct wk_object **host)
{
	CUevent done;
	CUresult r = wk_charge(WK_EVENT, 0);

	if (r == CUDA_SUCCESS)
		r = wk_charged(WK_EVENT, 0, wk_driver.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	if (r != CUDA_SUCCESS)
		return r;
	*host = wk_object_new(WK_HOST, c->context, done, 0);
	if (!*host) {
		wk_driver.cuEventDestroy_v2(done);
		return wk_charged(WK_EVENT, 0, CUDA_ERROR_OUT_OF_MEMORY);
	}
	(*host)->session = c->session;
	return CUDA_SUCCESS;
}

/* They are in no table, whose size would bound them. */
static CUresult new_host(struct wk_call *c, struct wk_object **host)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (atomic_load(&c->session->hosts) >= WK_HOSTS)
		wk_frees_wait();
	if (atomic_fetch_add(&c->session->hosts, 1) < WK_HOSTS)
		r = make_host(c, host);
	if (r != CUDA_SUCCESS)
		atomic_fetch_sub(&c->session->hosts, 1);
	return r;
}

CUresult wk_host_make(struct wk_call *c, struct wk_holds *holds, uint64_t number, const struct wk_box *box,
		      struct wk_object **out)
{
	uint64_t bytes = box ? packed(box) : 0;
	struct wk_object *host WK_HELD = NULL;
	CUresult r;

	*out = find_same(holds, number, bytes);
	if (*out)
		return CUDA_SUCCESS;
	r = new_host(c, &host);
	if (r != CUDA_SUCCESS)
		return r;
	host->number = number;
	if (bytes)
		r = stage(host, bytes);
	if (r == CUDA_SUCCESS)
		r = wk_holds_add(holds, host);
	*out = host;
	return r;
}

CUDA_HOST_NODE_PARAMS wk_host_params(struct wk_object *host)
{
	return (CUDA_HOST_NODE_PARAMS){ .fn = wk_host_reached, .userData = host };
}

static CUDA_MEMCPY3D copy_of(const struct wk_object *host, const struct wk_box *b)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = b->width, .Height = b->rows, .Depth = b->slices };
	size_t height = b->pitch ? b->slice / b->pitch : 0;

	if (b->to_host) {
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstMemoryType = CU_MEMORYTYPE_HOST;
		copy.srcDevice = b->address, copy.srcPitch = b->pitch, copy.srcHeight = height;
		copy.dstHost = (void *)host->address, copy.dstPitch = b->width, copy.dstHeight = b->rows;
	} else {
		copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcHost = (void *)host->address, copy.srcPitch = b->width, copy.srcHeight = b->rows;
		copy.dstDevice = b->address, copy.dstPitch = b->pitch, copy.dstHeight = height;
	}
	return copy;
}

CUresult wk_host_pair(struct wk_call *c, struct wk_object *host, const struct wk_box *box, CUgraph *pair)
{
	CUDA_HOST_NODE_PARAMS gate = wk_host_params(host);
	CUDA_MEMCPY3D copy = copy_of(host, box);
	CUgraphNode first, second;
	CUresult r = wk_driver.cuGraphCreate(pair, 0);

	if (r != CUDA_SUCCESS)
		return r;
	if (box->to_host) {
		r = wk_driver.cuGraphAddMemcpyNode(&first, *pair, NULL, 0, &copy, c->context->driver);
		if (r == CUDA_SUCCESS)
			r = wk_driver.cuGraphAddHostNode(&second, *pair, &first, 1, &gate);
	} else {
		r = wk_driver.cuGraphAddHostNode(&first, *pair, NULL, 0, &gate);
		if (r == CUDA_SUCCESS)
			r = wk_driver.cuGraphAddMemcpyNode(&second, *pair, &first, 1, &copy, c->context->driver);
	}
	if (r != CUDA_SUCCESS)
		wk_driver.cuGraphDestroy(*pair);
	return r;
}

/* The gate among the two nodes of a pair, and the other one. */
static bool find_pair(CUgraphNode node, CUgraphNode *gate, CUgraphNode *copy)
{
	CUgraphNodeType type;
	CUgraphNode nodes[3];
	size_t count = 3;
	CUgraph child;

	if (wk_driver.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS ||
	    wk_driver.cuGraphGetNodes(child, NULL, &count) != CUDA_SUCCESS || count != 2 ||
	    wk_driver.cuGraphGetNodes(child, nodes, &count) != CUDA_SUCCESS ||
	    wk_driver.cuGraphNodeGetType(nodes[0], &type) != CUDA_SUCCESS)
		return false;
	*gate = nodes[type != CU_GRAPH_NODE_TYPE_HOST];
	*copy = nodes[type == CU_GRAPH_NODE_TYPE_HOST];
	return wk_driver.cuGraphNodeGetType(*gate, &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_HOST;
}

struct wk_object *wk_host_of(CUgraphNode node, CUgraphNodeType type)
{
	CUDA_HOST_NODE_PARAMS params = { .fn = NULL };
	CUgraphNode gate = node, copy;
	struct wk_object *host;

	if (type == CU_GRAPH_NODE_TYPE_GRAPH && !find_pair(node, &gate, &copy))
		return NULL;
	if (wk_driver.cuGraphHostNodeGetParams(gate, &params) != CUDA_SUCCESS || params.fn != wk_host_reached)
		return NULL;
	host = params.userData;
	return type == CU_GRAPH_NODE_TYPE_GRAPH && !host->bytes ? NULL : host;
}

CUresult wk_host_change(CUgraphNode node, struct wk_object *host, const struct wk_box *box)
{
	CUDA_HOST_NODE_PARAMS params = wk_host_params(host);
	CUDA_MEMCPY3D shape = copy_of(host, box);
	CUgraphNode gate, copy;
	CUresult r = find_pair(node, &gate, &copy) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphMemcpyNodeSetParams(copy, &shape);
	return r == CUDA_SUCCESS ? wk_driver.cuGraphHostNodeSetParams(gate, &params) : r;
}

CUresult wk_host_alone(const struct wk_holds *holds, const struct wk_holds *more)
{
	for (size_t i = 0; i < more->count; i++) {
		const struct wk_object *o = more->at[i];

		if (o->kind == WK_HOST && o->bytes && find_same(holds, o->number, o->bytes) == o)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

static void launch_done(void *argument)
{
	struct wk_session *s = argument;

	atomic_fetch_sub_explicit(&s->behind, 1, memory_order_release);
}

/* Behind the launch: what it uses is in use until then, and calls are in their order. */
static CUresult mark(struct wk_session *s, const struct wk_holds *h, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < h->count; i++) {
		if (h->at[i]->kind == WK_HOST)
			r = wk_driver.cuEventRecordWithFlags(h->at[i]->driver, stream, 0);
	}
	return r == CUDA_SUCCESS ? wk_driver.cuLaunchHostFunc(stream, launch_done, s) : r;
}

/*
 * Two graphs of one origin have the same memory here, and may not run at the same time. While one runs, calls are executed
 * in their order: any of the driver may wait for it. So this one is never executed where calls are read (see call.c), and may
 * wait for the launch where nothing else can say that it has ended: events are not recorded in another context's stream.
 */
CUresult wk_host_launch(struct wk_call *c, const struct wk_graph *graph, CUgraphExec exec, CUstream stream)
{
	const struct wk_holds *h = &graph->holds;
	bool any = false;
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < h->count; i++) {
		if (h->at[i]->kind != WK_HOST)
			continue;
		any = true;
		r = wk_driver.cuStreamWaitEvent(stream, h->at[i]->driver, 0);
	}
	if (!any)
		return wk_driver.cuGraphLaunch(exec, stream);
	atomic_fetch_add_explicit(&c->session->behind, 1, memory_order_relaxed);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuGraphLaunch(exec, stream);
	if (r == CUDA_SUCCESS && mark(c->session, h, stream) == CUDA_SUCCESS)
		return r;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuStreamSynchronize(stream);
	launch_done(c->session);
	return r;
}
