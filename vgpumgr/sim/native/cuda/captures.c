/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture. A capture is begun in one stream and spreads by events: a stream that waits for an event of a captured
 * stream is captured too. What is put into a captured stream becomes a node behind the stream's last ones.
 */
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "graph_inside.h"

static struct capture *captures; /* that go on */
static int n_captures;           /* read without the lock, to be quick where there is none */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void unref(struct capture *c)
{
	if (c && !--c->refs) {
		free(c->left);
		free(c->edges);
		free(c);
	}
}

static void set_tips(struct graph_node ***tips, size_t *n, struct graph_node **now, size_t n_now)
{
	free(*tips);
	*tips = now;
	*n = n_now;
}

static void leave(struct stream *s)
{
	s->capture = NULL;
	set_tips(&s->tips, &s->n_tips, NULL, 0);
}

/* It is over: its streams are ordinary ones again. */
static void end(struct capture *c)
{
	struct capture **at = &captures;
	struct stream *origin = c->origin;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	n_captures--;
	c->graph->capture = NULL;
	c->graph = NULL;
	for (struct stream *s = origin->ctx->streams; s; s = s->next) {
		if (s->capture == c)
			leave(s);
	}
	if (origin->capture == c) /* it is in that list no more */
		leave(origin);
	c->origin = NULL;
	unref(c);
}

/* A stream that has joined may go before the capture ends: cuda-core's graph builders do. */
static bool keep_tips(struct capture *c, const struct stream *s)
{
	struct graph_node **grown = realloc(c->left, (c->n_left + s->n_tips + 1) * sizeof(struct graph_node *));

	if (!grown)
		return false;
	c->left = grown;
	for (size_t i = 0; i < s->n_tips; i++)
		grown[c->n_left++] = s->tips[i];
	return true;
}

static bool is_inside(const struct graph *g, const struct graph *outer)
{
	while (g->parent && g != outer)
		g = g->parent->graph;
	return g == outer;
}

/* Captures into bodies of its nodes end with it. */
static void free_captured(struct graph *g)
{
	struct capture *c = captures;

	while (c) {
		struct capture *next = c->next;

		if (is_inside(c->graph, g))
			end(c);
		c = next;
	}
	graph_free(g);
}

void capture_leave(struct stream *s)
{
	struct capture *c = s->capture;
	struct graph *g = c ? c->graph : NULL;

	if (c && c->origin == s) {
		bool given = c->given;

		end(c);
		if (!given)
			free_captured(g);
	} else if (c) {
		if (!keep_tips(c, s))
			c->invalid = true;
		leave(s);
	}
}

/* ---- what may not be captured */

static CUresult spoil(struct capture *c, CUresult why)
{
	CUresult r = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : why;

	c->invalid = true;
	return r;
}

struct capture *capture_blocking(const struct context *ctx)
{
	for (struct stream *s = ctx->streams; n_captures && s; s = s->next) {
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
			return s->capture;
	}
	return NULL;
}

/* The legacy stream waits for each blocking one: none of these may be captured meanwhile. */
static CUresult refuse_legacy(struct context *ctx)
{
	CUresult r = CUDA_SUCCESS;

	for (struct stream *s = ctx->streams; n_captures && s; s = s->next) {
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
			s->capture->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return r;
}

CUresult capture_refuse(struct stream *s)
{
	if (s->capture)
		return spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return s == s->ctx->legacy ? refuse_legacy(s->ctx) : CUDA_SUCCESS;
}

CUresult capture_refuse_context(struct context *ctx)
{
	CUresult r = CUDA_SUCCESS;

	for (struct stream *s = ctx->streams; n_captures && s; s = s->next) {
		if (s->capture)
			r = spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return r;
}

CUresult capture_unsafe(void)
{
	CUresult r = CUDA_SUCCESS;

	if (!__atomic_load_n(&n_captures, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	DRV_LOCKED();
	for (struct capture *c = captures; c; c = c->next) {
		if (cuda_capture_forbids(thread_mode, c->mode, pthread_equal(c->thread, pthread_self()))) {
			c->invalid = true;
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return r;
}

CUresult capture_refuse_event(const struct capture_point *event)
{
	if (!event->capture)
		return CUDA_SUCCESS;
	event->capture->invalid = true;
	return event->capture->graph ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE; /* as on an H200 */
}

/* ---- what is captured */

CUresult capture_add(struct stream *s, struct graph_node *made)
{
	struct graph_node **tip;

	if (s->capture->invalid) {
		node_clear(made);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	if (graph_may_have(s->capture->graph, made) != CUDA_SUCCESS) {
		node_clear(made);
		return spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	tip = malloc(sizeof(*tip));
	if (tip)
		*tip = graph_add(s->capture->graph, made, s->tips, s->n_tips);
	else
		node_clear(made);
	if (!tip || !*tip) {
		free(tip);
		return spoil(s->capture, CUDA_ERROR_OUT_OF_MEMORY);
	}
	set_tips(&s->tips, &s->n_tips, tip, 1);
	return CUDA_SUCCESS;
}

static struct graph_node **copy_tips(struct graph_node *const *tips, size_t n)
{
	struct graph_node **copy = malloc((n + 1) * sizeof(struct graph_node *));

	if (copy && n)
		memcpy(copy, tips, n * sizeof(struct graph_node *));
	return copy;
}

void capture_point_clear(struct capture_point *p)
{
	unref(p->capture);
	free(p->tips);
	*p = (struct capture_point){ NULL, NULL, 0 };
}

CUresult capture_record(struct stream *s, struct capture_point *event)
{
	struct graph_node **tips;

	if (s->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	tips = copy_tips(s->tips, s->n_tips);
	if (!tips)
		return spoil(s->capture, CUDA_ERROR_OUT_OF_MEMORY);
	s->capture->refs++;
	capture_point_clear(event);
	*event = (struct capture_point){ s->capture, tips, s->n_tips };
	return CUDA_SUCCESS;
}

static CUresult join(struct stream *s, struct graph_node *const *tips, size_t n)
{
	struct graph_node **all = malloc((s->n_tips + n + 1) * sizeof(struct graph_node *));
	size_t count = s->n_tips;

	if (!all)
		return spoil(s->capture, CUDA_ERROR_OUT_OF_MEMORY);
	if (count)
		memcpy(all, s->tips, count * sizeof(struct graph_node *));
	for (size_t i = 0; i < n; i++) {
		size_t at = 0;

		while (at < count && all[at] != tips[i])
			at++;
		if (at == count)
			all[count++] = tips[i];
	}
	set_tips(&s->tips, &s->n_tips, all, count);
	return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *s, const struct capture_point *event)
{
	struct capture *c = event->capture;

	if (s->capture && s->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!c) /* of work that is done as soon as it is put into a stream */
		return spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	if (!c->graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s == s->ctx->legacy)
		return spoil(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (s->ctx != c->origin->ctx)
		return spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (s->capture && s->capture != c) {
		spoil(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		return spoil(c, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	s->capture = c;
	return join(s, event->tips, event->n_tips);
}

/* ---- its beginning and its end */

CUresult capture_begin(struct stream *s, CUstreamCaptureMode mode, struct graph *given)
{
	struct capture *c = calloc(1, sizeof(*c));

	if (c)
		c->graph = given ? given : graph_new(false);
	if (!c || !c->graph) {
		free(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->refs = 1;
	c->given = given;
	c->id = next_id();
	c->mode = mode;
	c->thread = pthread_self();
	c->origin = s;
	c->graph->capture = c;
	c->next = captures;
	captures = c;
	s->capture = c;
	n_captures++;
	return CUDA_SUCCESS;
}

static bool come_first(struct graph_node *const *nodes, size_t n, const struct stream *origin)
{
	for (size_t i = 0; i < n; i++) {
		bool found = false;

		for (size_t o = 0; o < origin->n_tips && !found; o++)
			found = node_follows(origin->tips[o], nodes[i]);
		if (!found)
			return false;
	}
	return true;
}

/* All that other streams captured must come before what the first one has captured. */
static bool is_joined(const struct capture *c)
{
	const struct stream *origin = c->origin;

	for (const struct stream *s = origin->ctx->streams; s; s = s->next)
		if (s->capture == c && s != origin && !come_first(s->tips, s->n_tips, origin))
			return false;
	return come_first(c->left, c->n_left, origin);
}

CUresult capture_end(struct stream *s, CUgraph *out)
{
	struct capture *c = s->capture;
	struct graph *g = c->graph;
	bool given = c->given;
	CUresult r = CUDA_SUCCESS;

	if (c->origin != s)
		return spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (c->invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!is_joined(c))
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	end(c);
	if (r == CUDA_SUCCESS)
		*out = (CUgraph)g;
	else if (!given)
		free_captured(g);
	return r;
}

CUresult capture_depend(struct stream *s, struct graph_node *const *nodes, size_t n, bool only)
{
	struct graph_node **tips;

	if (!only)
		return join(s, nodes, n);
	tips = copy_tips(nodes, n);
	if (!tips)
		return CUDA_ERROR_OUT_OF_MEMORY;
	set_tips(&s->tips, &s->n_tips, tips, n);
	return CUDA_SUCCESS;
}

bool capture_any(void)
{
	return __atomic_load_n(&n_captures, __ATOMIC_RELAXED);
}

CUstreamCaptureMode capture_exchange(CUstreamCaptureMode mode)
{
	CUstreamCaptureMode before = thread_mode;

	thread_mode = mode;
	return before;
}
