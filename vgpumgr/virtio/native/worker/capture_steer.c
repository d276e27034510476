/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: captures that a guest steers. The graph of one that goes on is in the table as any other, and so is one that the
 * guest has captured into; whether the driver still has it, its stream tells: each use asks, and holds the capture's end up.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "mathematics.h"
#include "session.h"
#include "share.h"
#include "vg_worker.h"

enum { MOST_DEPENDENCIES = 256 };

void wk_graph_unuse(struct wk_use *use)
{
	if (use->locked)
		pthread_mutex_unlock(&wk_numbers_lock);
	use->locked = false;
	wk_release_held(&use->stream);
	wk_release_held(&use->outer);
	wk_release_held(&use->graph);
}

/* A side of a copy that is memory of the guest's. */
static CUresult check_side(struct wk_call *c, CUmemorytype type, uint64_t address)
{
	wk_unpin(c);
	if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return wk_check_range(c, address, 1, 1, 1, 0);
}

static CUresult check_copy(struct wk_call *c, CUgraphNode node)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = 0 };
	CUresult r = wk_driver.cuGraphMemcpyNodeGetParams(node, &copy);

	if (r == CUDA_SUCCESS)
		r = check_side(c, copy.srcMemoryType, copy.srcDevice);
	return r == CUDA_SUCCESS ? check_side(c, copy.dstMemoryType, copy.dstDevice) : r;
}

/*
 * No memory of this process may be in a graph, and none of its functions but the one that stands for the guest's, and those of
 * a library that was called while the stream captured.
 */
CUresult wk_capture_check(struct wk_call *c, const struct wk_graph *graph)
{
	CUresult r = CUDA_SUCCESS;
	CUgraphNodeType type;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; i++) {
		if (!graph->nodes[i])
			continue; /* destroyed: of a graph that the guest had before */
		r = wk_driver.cuGraphNodeGetType(graph->nodes[i], &type);
		if (r != CUDA_SUCCESS)
			break;
		if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
			r = check_copy(c, graph->nodes[i]);
		else if (type == CU_GRAPH_NODE_TYPE_HOST)
			r = wk_host_of(graph->nodes[i], type) || wk_math_loaded() ? CUDA_SUCCESS :
										    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		else if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMSET &&
			 type != CU_GRAPH_NODE_TYPE_EMPTY && type != CU_GRAPH_NODE_TYPE_GRAPH &&
			 type != CU_GRAPH_NODE_TYPE_EVENT_RECORD && type != CU_GRAPH_NODE_TYPE_WAIT_EVENT &&
			 type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && !wk_conditional_of(graph, graph->nodes[i]))
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return r;
}

/* A library may have made more nodes than one for each of its calls. */
CUresult wk_capture_charge(struct wk_graph *graph, uint32_t count)
{
	uint64_t more = count > graph->weight ? count - graph->weight : 0;

	if (!more)
		return CUDA_SUCCESS;
	if (!wk_nodes_charge(more))
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->weight += more;
	return CUDA_SUCCESS;
}

/* The same of a body, whose graph has more than what was captured into this one. */
static CUresult charge_body(uint64_t charged, struct wk_graph *all, const struct wk_graph *body)
{
	uint64_t made = body->count - body->before, more = made > charged ? made - charged : 0;

	if (more && !wk_nodes_charge(more))
		return CUDA_ERROR_OUT_OF_MEMORY;
	all->weight += more;
	return CUDA_SUCCESS;
}

/* Charges the graph for all nodes captured since its capture began: it is not known which capture they came from. */
static CUresult keep(struct wk_call *c, struct wk_object *o)
{
	struct wk_object *context = c->context;
	struct wk_session *s = c->session;
	struct wk_graph *g = o->graph, *all = wk_graph_all(o);
	uint64_t meanwhile = g->given && s->captured >= g->noted ? s->captured - g->noted : s->captured;
	CUresult r = wk_nodes_charge(meanwhile) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		all->weight += meanwhile;
	if (r == CUDA_SUCCESS)
		r = wk_holds_add_all(&all->holds, &s->capture_holds);
	if (r == CUDA_SUCCESS)
		r = wk_numbers_rest(g, o->driver);
	if (r == CUDA_SUCCESS)
		r = g->body ? charge_body(meanwhile, all, g) : wk_capture_charge(g, g->count);
	c->context = o->context; /* whose memory it uses: the call may be another's */
	if (r == CUDA_SUCCESS)
		r = wk_capture_check(c, g);
	c->context = context;
	return r;
}

/* What the guest cannot be left with. A body stays with its node, and nothing is made of their graph any more. */
static void let_go(struct wk_call *c, struct wk_object *o, uint64_t handle)
{
	if (o->graph->body)
		wk_graph_all(o)->broken = true;
	else
		wk_remove(c, WK_GRAPH, handle);
}

/*
 * Under the lock. The outermost graph that this one is inside of may be a capture's: its stream is then held, since the
 * driver ends the graph, and all inside of it, with that. CUDA_ERROR_INVALID_VALUE: it has ended.
 */
static CUresult hold_outer(struct wk_call *c, const struct wk_object *graph, struct wk_object **outer)
{
	const struct wk_object *o = graph;
	struct wk_tip tip = { .capture = 0 };
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	uint64_t stream;

	*outer = NULL;
	while (o->owner->kind == WK_GRAPH)
		o = o->owner;
	if (o == graph || !o->lent)
		return CUDA_SUCCESS;
	stream = atomic_load(&o->graph->stream);
	if (stream)
		r = wk_capture_tip(c, stream, outer, &tip);
	if (r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || (r == CUDA_SUCCESS && tip.capture == o->graph->capture))
		return CUDA_SUCCESS;
	wk_release_held(outer);
	return CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock: no stream captures into the guest's graph any more, and no capture_finish has said so. */
static CUresult keep_given(struct wk_call *c, struct wk_object *o)
{
	struct wk_object *outer WK_HELD = NULL;
	uint64_t handle = wk_handle_of(c->session, o);
	CUresult r;

	atomic_store(&o->graph->stream, 0);
	if (!handle || hold_outer(c, o, &outer) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	r = keep(c, o);
	if (r != CUDA_SUCCESS)
		let_go(c, o, handle);
	return r;
}

void wk_capture_none(struct wk_call *c)
{
	for (struct wk_numbering *n = c->session->numberings; n; n = n->next)
		if (n->graph && n->graph->graph->given && atomic_load(&n->graph->graph->stream))
			keep_given(c, n->graph);
	wk_capture_forget(c->session);
	wk_numbers_drop(c->session, 0);
	if (c->context) /* a context may have ended by that, and was current then */
		wk_set_current(c->context);
}

void wk_capture_over(struct wk_call *c, struct wk_object *stream)
{
	CUstreamCaptureStatus status;
	cuuint64_t number = 0;

	if (!stream || !stream->capturing || wk_capture_ask(stream, &status, &number) != CUDA_SUCCESS ||
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		return;
	stream->capturing = NULL;
	if (atomic_fetch_sub(&c->session->captures, 1) != 1)
		return;
	pthread_mutex_lock(&wk_numbers_lock);
	wk_capture_none(c);
	pthread_mutex_unlock(&wk_numbers_lock);
}

void wk_capture_gone(struct wk_call *c)
{
	pthread_mutex_lock(&wk_numbers_lock);
	wk_numbers_drop_gone(c->session);
	if (!atomic_load(&c->session->captures))
		wk_capture_none(c);
	pthread_mutex_unlock(&wk_numbers_lock);
}

/* What is inside of a capture's graph is used under the lock. */
static void unlock(struct wk_use *use)
{
	if (!use->outer)
		pthread_mutex_unlock(&wk_numbers_lock);
	use->locked = use->outer;
}

/* Under the lock: whether the capture goes on; a graph of the guest's own is a graph as any other when it does not. */
static CUresult check(struct wk_call *c, struct wk_use *use)
{
	struct wk_graph *g = use->graph->graph;
	struct wk_tip tip = { .capture = 0 };
	CUresult r = wk_capture_tip(c, atomic_load(&g->stream), &use->stream, &tip);

	if (r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || (r == CUDA_SUCCESS && tip.capture == g->capture))
		return r;
	wk_release_held(&use->stream);
	if (!g->given)
		return CUDA_ERROR_INVALID_VALUE;
	r = keep_given(c, use->graph);
	wk_numbers_drop(c->session, g->capture);
	unlock(use);
	return r;
}

static bool is_inside(const struct wk_object *o, const struct wk_object *graph, uint32_t place)
{
	for (; o->kind == WK_GRAPH; o = o->owner)
		if (o->owner == graph)
			return place == WK_EVERY_NODE || o->graph->place == place;
	return false;
}

/* Under the lock. */
static bool captured_inside(struct wk_call *c, const struct wk_object *graph, uint32_t place)
{
	struct wk_numbering *n = c->session->numberings;

	while (n) {
		struct wk_object *o = n->graph, *stream WK_HELD = NULL;
		struct wk_tip tip = { .capture = 0 };
		cuuint64_t capture = n->capture;
		CUresult r;

		n = n->next;
		if (!o || !atomic_load(&o->graph->stream) || !is_inside(o, graph, place))
			continue;
		r = wk_capture_tip(c, atomic_load(&o->graph->stream), &stream, &tip);
		if (r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || (r == CUDA_SUCCESS && tip.capture == capture))
			return true;
		keep_given(c, o);
		wk_numbers_drop(c->session, capture);
		n = c->session->numberings;
	}
	return false;
}

bool wk_captured_inside(struct wk_call *c, const struct wk_use *use, uint32_t place)
{
	bool found;

	if (use->locked)
		return captured_inside(c, use->graph, place);
	pthread_mutex_lock(&wk_numbers_lock);
	found = captured_inside(c, use->graph, place);
	pthread_mutex_unlock(&wk_numbers_lock);
	return found;
}

/* Under the lock. One that is lent and in no other is a capture's: without a stream its capture has ended, and it with that. */
static CUresult use_locked(struct wk_call *c, struct wk_use *use)
{
	CUresult r = hold_outer(c, use->graph, &use->outer);

	if (r != CUDA_SUCCESS)
		return r;
	if (atomic_load(&use->graph->graph->stream))
		return check(c, use);
	if (use->graph->lent && use->graph->owner->kind != WK_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	unlock(use);
	return CUDA_SUCCESS;
}

CUresult wk_graph_use(struct wk_call *c, uint64_t handle, struct wk_use *use)
{
	CUresult r;

	*use = (struct wk_use){ .graph = NULL };
	r = wk_hold(c, WK_GRAPH, handle, &use->graph);
	if (r != CUDA_SUCCESS || !(use->graph->lent || atomic_load(&use->graph->graph->stream)))
		return r;
	pthread_mutex_lock(&wk_numbers_lock);
	use->locked = true;
	return use_locked(c, use);
}

CUresult wk_graph_hold(struct wk_call *c, uint64_t handle, struct wk_object **graph)
{
	struct wk_use use WK_USED = { .graph = NULL };
	CUresult r = wk_graph_use(c, handle, &use);

	*graph = NULL;
	if (r == CUDA_SUCCESS && (use.stream || use.outer || wk_captured_inside(c, &use, WK_EVERY_NODE) ||
				  wk_graph_all(use.graph)->broken))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*graph = use.graph;
	use.graph = NULL;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static void join(struct wk_numbering *n, struct wk_object *graph, uint64_t stream)
{
	n->graph = graph;
	wk_hold_again(graph);
	graph->graph->capture = n->capture;
	atomic_store(&graph->graph->stream, stream);
}

static CUresult put_graph(struct wk_call *c, const struct vg_capture_graph_request *in, struct wk_object *stream,
			  const struct wk_tip *tip)
{
	struct wk_numbering *n = wk_numbers_of(c->session, tip->capture, true);
	struct wk_object *o;

	if (!n || n->graph)
		return n ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	o = wk_object_new(WK_GRAPH, stream->context, tip->graph, 0);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->lent = true;
	o->graph = wk_graph_new(0, NULL);
	if (!o->graph) {
		wk_release(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->graph->nodes = n->own.nodes, o->graph->count = n->own.count, o->graph->room = n->own.room;
	n->own = (struct wk_graph){ .nodes = NULL };
	join(n, o, in->stream);
	return wk_put(c, in->created, o);
}

CUresult wk_do_capture_graph(struct wk_call *c, const struct vg_capture_graph_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	struct wk_tip tip;
	CUresult r;

	pthread_mutex_lock(&wk_numbers_lock);
	r = wk_capture_tip(c, in->stream, &stream, &tip);
	if (r == CUDA_SUCCESS)
		r = put_graph(c, in, stream, &tip);
	pthread_mutex_unlock(&wk_numbers_lock);
	return r;
}

CUresult wk_do_capture_depend(struct wk_call *c, const struct vg_capture_depend_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	struct wk_object *stream WK_HELD = NULL;
	CUgraphNode nodes[MOST_DEPENDENCIES];
	struct wk_tip tip;
	size_t count = 0;
	CUresult r = in->only <= CU_STREAM_SET_CAPTURE_DEPENDENCIES ? wk_graph_use(c, in->graph, &use) :
								      CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS && !use.stream)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		r = wk_capture_tip(c, in->stream, &stream, &tip);
	if (r == CUDA_SUCCESS && tip.capture != use.graph->graph->capture)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_read_nodes(use.graph, &in->dependencies, nodes, MOST_DEPENDENCIES, &count);
	return r == CUDA_SUCCESS ? wk_driver.cuStreamUpdateCaptureDependencies(wk_raw(stream), nodes, count, in->only) : r;
}

/* ---- into a graph that is there */

/* Under the lock: the capture has begun, and is ended again where it cannot be known. */
static CUresult know(struct wk_call *c, struct wk_object *stream, uint64_t handle, struct wk_object *graph)
{
	CUstreamCaptureStatus status;
	cuuint64_t capture = 0;
	struct wk_numbering *n = NULL;
	uint32_t before = graph->graph->count;
	CUgraph same;
	CUresult r = wk_capture_ask(stream, &status, &capture);

	if (r == CUDA_SUCCESS && capture)
		n = wk_numbers_of(c->session, capture, true);
	if (n && !n->graph) {
		graph->graph->given = true;
		graph->graph->before = before;
		graph->graph->noted = c->session->captured;
		join(n, graph, handle);
		return CUDA_SUCCESS;
	}
	wk_driver.cuStreamEndCapture(wk_raw(stream), &same);
	return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

/* Under the lock. */
static CUresult begin(struct wk_call *c, const struct vg_capture_into_request *in, struct wk_object *graph,
		      struct wk_object *stream)
{
	CUgraphNode nodes[MOST_DEPENDENCIES];
	size_t count = 0;
	CUresult r = wk_read_nodes(graph, &in->dependencies, nodes, MOST_DEPENDENCIES, &count);

	if (r != CUDA_SUCCESS)
		return r;
	if (!atomic_load(&c->session->captures)) /* of captures whose stream was destroyed */
		wk_capture_none(c);
	atomic_fetch_add(&c->session->captures, 1);
	wk_share_prepare_capture();
	r = wk_driver.cuStreamBeginCaptureToGraph(wk_raw(stream), graph->driver, nodes, NULL, count,
						  CU_STREAM_CAPTURE_MODE_RELAXED);
	if (r == CUDA_SUCCESS)
		r = know(c, stream, in->stream, graph);
	if (r == CUDA_SUCCESS && !stream->capturing)
		stream->capturing = c->session;
	else
		atomic_fetch_sub(&c->session->captures, 1);
	return r;
}

CUresult wk_do_capture_into(struct wk_call *c, const struct vg_capture_into_request *in)
{
	struct wk_use use WK_USED = { .graph = NULL };
	struct wk_object *graph, *stream WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS && !stream)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS)
		r = wk_graph_use(c, in->graph, &use);
	graph = use.graph;
	if (r == CUDA_SUCCESS && (use.stream || wk_graph_all(graph)->broken))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && ((graph->lent && !graph->graph->body) || graph->context != stream->context))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	if (!use.locked)
		pthread_mutex_lock(&wk_numbers_lock);
	use.locked = true;
	return atomic_load(&graph->graph->stream) ? CUDA_ERROR_ILLEGAL_STATE : begin(c, in, graph, stream);
}

/* ---- the end */

/* Under the lock: the driver's answer. The graph is not kept where it may not be; where it was the capture's, it has gone. */
static CUresult finish(struct wk_call *c, const struct vg_capture_finish_request *in, struct wk_object *o,
		       struct wk_object *stream)
{
	struct wk_graph *g = o->graph;
	struct wk_object *outer WK_HELD = NULL;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult kept = hold_outer(c, o, &outer), r;
	cuuint64_t number = 0;
	CUgraph driver = NULL;

	if (kept != CUDA_SUCCESS)
		wk_driver.cuStreamQuery(wk_raw(stream)); /* ends it without a node more: what it captures into has gone */
	r = wk_driver.cuStreamEndCapture(wk_raw(stream), &driver);
	if (r != CUDA_SUCCESS && (wk_capture_ask(stream, &status, &number) != CUDA_SUCCESS ||
				  status != CU_STREAM_CAPTURE_STATUS_NONE))
		return r; /* it goes on */
	atomic_store(&g->stream, 0);
	if (kept == CUDA_SUCCESS)
		kept = r == CUDA_SUCCESS || g->given ? keep(c, o) : r;
	if (r == CUDA_SUCCESS && !g->body)
		o->lent = false; /* ends with its object */
	if (kept != CUDA_SUCCESS)
		let_go(c, o, in->graph);
	wk_numbers_drop(c->session, g->capture);
	return r == CUDA_SUCCESS ? kept : r;
}

CUresult wk_do_capture_finish(struct wk_call *c, const struct vg_capture_finish_request *in)
{
	struct wk_object *graph WK_HELD = NULL, *stream WK_HELD = NULL;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const struct wk_numbering *n;
	cuuint64_t number = 0;
	CUresult r = wk_hold(c, WK_GRAPH, in->graph, &graph);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_STREAM, in->stream, &stream);
	if (r == CUDA_SUCCESS && !stream)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&wk_numbers_lock);
	n = wk_numbers_of(c->session, graph->graph->capture, false);
	if (!n || n->graph != graph || atomic_load(&graph->graph->stream) != in->stream)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = wk_capture_ask(stream, &status, &number);
	if (r == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && number != graph->graph->capture)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_ERROR_ILLEGAL_STATE : finish(c, in, graph, stream);
	pthread_mutex_unlock(&wk_numbers_lock);
	wk_capture_over(c, stream);
	return r;
}
