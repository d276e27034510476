/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By hand: what a stream under capture depends on. A guest knows nodes by numbers below their graph, which has none before the
 * capture ends: those that are asked for get theirs now, and keep them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "vg_worker.h"

enum { NEXT, DEPENDENCIES };
enum { CAPTURES = 1024 }; /* at a time, and with those whose streams were destroyed meanwhile */

static struct wk_graph *nodes_of(struct wk_numbering *n)
{
	return n->graph ? n->graph->graph : &n->own;
}

pthread_mutex_t wk_numbers_lock = PTHREAD_MUTEX_INITIALIZER;

static struct wk_numbering *find(const struct wk_session *s, cuuint64_t capture)
{
	struct wk_numbering *n = s->numberings;

	while (n && n->capture != capture)
		n = n->next;
	return n;
}

struct wk_numbering *wk_numbers_of(struct wk_session *s, cuuint64_t capture, bool make)
{
	struct wk_numbering *n = find(s, capture);
	size_t count = 0;

	if (n || !make)
		return n;
	for (n = s->numberings; n; n = n->next)
		count++;
	n = count < CAPTURES ? calloc(1, sizeof(*n)) : NULL;
	if (!n)
		return NULL;
	n->capture = capture;
	n->next = s->numberings;
	s->numberings = n;
	return n;
}

static void drop(struct wk_numbering **at)
{
	struct wk_numbering *n = *at;

	*at = n->next;
	free(n->own.nodes);
	if (n->graph)
		wk_release(n->graph);
	free(n);
}

void wk_numbers_drop(struct wk_session *s, cuuint64_t capture)
{
	struct wk_numbering **at = &s->numberings;

	while (*at) {
		if (!capture || (*at)->capture == capture)
			drop(at);
		else
			at = &(*at)->next;
	}
}

void wk_numbers_drop_gone(struct wk_session *s)
{
	struct wk_numbering **at = &s->numberings;

	while (*at) {
		if ((*at)->graph && !wk_handle_of(s, (*at)->graph))
			drop(at);
		else
			at = &(*at)->next;
	}
}

static CUresult append(struct wk_graph *n, CUgraphNode node)
{
	CUgraphNode *more;
	uint32_t room;

	if (n->count == n->room) {
		room = n->room ? 2 * n->room : 64;
		more = room <= WK_NODES ? reallocarray(n->nodes, room, sizeof(*more)) : NULL;
		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		n->nodes = more;
		n->room = room;
	}
	n->nodes[n->count++] = node;
	return CUDA_SUCCESS;
}

/* The latest are asked for most often. */
static CUresult number_of(struct wk_graph *n, CUgraphNode node, uint32_t *number)
{
	for (uint32_t i = n->count; i > 0; i--) {
		if (n->nodes[i - 1] == node) {
			*number = i - 1;
			return CUDA_SUCCESS;
		}
	}
	*number = n->count;
	return append(n, node);
}

static CUresult list(struct wk_graph *n, const CUgraphNode *nodes, size_t count, uint32_t first,
		     struct vg_capture_list_reply *out)
{
	size_t most = sizeof(out->numbers) / sizeof(uint32_t), filled = 0;
	CUresult r = CUDA_SUCCESS;
	uint32_t number = 0;

	out->total = (uint32_t)count;
	for (size_t i = first; r == CUDA_SUCCESS && i < count && filled < most; i++) {
		r = number_of(n, nodes[i], &number);
		memcpy(out->numbers + sizeof(number) * filled++, &number, sizeof(number));
	}
	out->numbers_length = (uint32_t)(sizeof(number) * filled);
	return r;
}

static CUresult list_dependencies(struct wk_graph *n, uint32_t node, uint32_t first, struct vg_capture_list_reply *out)
{
	CUgraphNode *nodes;
	size_t count = 0;
	CUresult r;

	if (node >= n->count)
		return CUDA_ERROR_INVALID_VALUE;
	r = wk_driver.cuGraphNodeGetDependencies(n->nodes[node], NULL, &count);
	if (r != CUDA_SUCCESS || !count)
		return r;
	nodes = calloc(count, sizeof(*nodes));
	if (!nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuGraphNodeGetDependencies(n->nodes[node], nodes, &count);
	if (r == CUDA_SUCCESS)
		r = list(n, nodes, count, first, out);
	free(nodes);
	return r;
}

CUresult wk_capture_tip(struct wk_call *c, uint64_t handle, struct wk_object **stream, struct wk_tip *tip)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = wk_hold(c, WK_STREAM, handle, stream);

	if (r == CUDA_SUCCESS && !*stream)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuStreamGetCaptureInfo_v2(wk_raw(*stream), &status, &tip->capture, &tip->graph, &tip->nodes,
							&tip->count);
	if (r != CUDA_SUCCESS)
		return r;
	return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS :
	       status == CU_STREAM_CAPTURE_STATUS_NONE	 ? CUDA_ERROR_ILLEGAL_STATE :
							   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult wk_do_capture_list(struct wk_call *c, const struct vg_capture_list_request *in, struct vg_capture_list_reply *out)
{
	struct wk_object *stream WK_HELD = NULL;
	struct wk_numbering *n = NULL;
	struct wk_tip tip;
	CUresult r;

	if (in->what > DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&wk_numbers_lock);
	r = wk_capture_tip(c, in->stream, &stream, &tip);
	if (r == CUDA_SUCCESS) {
		n = wk_numbers_of(c->session, tip.capture, true);
		r = n ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r == CUDA_SUCCESS) {
		out->capture = tip.capture;
		r = in->what == NEXT ? list(nodes_of(n), tip.nodes, tip.count, in->first, out) :
				       list_dependencies(nodes_of(n), in->node, in->first, out);
	}
	pthread_mutex_unlock(&wk_numbers_lock);
	return r;
}

/* ---- at the end */

static int by_node(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)*(const CUgraphNode *)a, y = (uintptr_t)*(const CUgraphNode *)b;

	return (x > y) - (x < y);
}

static bool is_among(const CUgraphNode *sorted, uint32_t count, CUgraphNode node)
{
	return bsearch(&node, sorted, count, sizeof(node), by_node);
}

static CUgraphNode *copy_sorted(const CUgraphNode *nodes, uint32_t count)
{
	CUgraphNode *copy = calloc(count + 1u, sizeof(*copy));

	if (copy && count) {
		memcpy(copy, nodes, count * sizeof(*copy));
		qsort(copy, count, sizeof(*copy), by_node);
	}
	return copy;
}

/* Those with numbers first, in their order; then the others. */
static CUresult reorder(const struct wk_graph *n, struct wk_graph *graph)
{
	CUgraphNode *all = copy_sorted(graph->nodes, graph->count), *told = copy_sorted(n->nodes, n->count);
	CUgraphNode *nodes = calloc((size_t)graph->count + n->count + 1, sizeof(*nodes));
	uint32_t count = 0;
	CUresult r = all && told && nodes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < n->count; i++) {
		if (!is_among(all, graph->count, n->nodes[i]))
			r = CUDA_ERROR_UNKNOWN; /* no node leaves a graph that is captured */
		nodes[count++] = n->nodes[i];
	}
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; i++)
		if (!is_among(told, n->count, graph->nodes[i]))
			nodes[count++] = graph->nodes[i];
	free(all);
	free(told);
	if (r != CUDA_SUCCESS) {
		free(nodes);
		return r;
	}
	free(graph->nodes);
	graph->nodes = nodes;
	graph->room = graph->count + n->count + 1;
	graph->count = count;
	return CUDA_SUCCESS;
}

CUresult wk_numbers_rest(struct wk_graph *graph, CUgraph driver)
{
	struct wk_graph all = { .nodes = NULL };
	CUgraphNode *told;
	uint32_t count = graph->count;
	CUresult r = wk_graph_number(&all, driver); /* each once */

	told = copy_sorted(graph->nodes, count);
	if (r == CUDA_SUCCESS && !told)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < all.count; i++)
		if (!is_among(told, count, all.nodes[i]))
			r = append(graph, all.nodes[i]);
	free(told);
	free(all.nodes);
	return r;
}

CUresult wk_numbers_apply(struct wk_session *s, cuuint64_t capture, struct wk_graph *graph)
{
	const struct wk_numbering *n = capture ? find(s, capture) : NULL;

	return n ? reorder(&n->own, graph) : CUDA_SUCCESS;
}
