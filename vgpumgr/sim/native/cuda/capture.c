/* SPDX-License-Identifier: Apache-2.0 */
/* What a program asks of captures, by the handles of streams. */
#include <stdlib.h>

#include "captures.h"

bool capture_takes(CUstream handle)
{
	struct context *ctx = context_current();
	struct stream *s;

	if (!capture_any() || !ctx)
		return false;
	DRV_LOCKED();
	return stream_get(ctx, handle, &s) == CUDA_SUCCESS && s->capture;
}

CUresult capture_put(CUstream handle, struct graph_node *made)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS && !s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		return capture_add(s, made);
	node_clear(made);
	return r;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult r = mode ? cuda_check_capture_mode(*mode) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*mode = capture_exchange(*mode);
	return r;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_capture_mode(mode);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS && s == s->ctx->legacy)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS && s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	return r == CUDA_SUCCESS ? capture_begin(s, mode, NULL) : r;
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
				     size_t n, CUstreamCaptureMode mode)
{
	struct graph *g = NULL;
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = cuda_check_capture_mode(mode);
	if (r == CUDA_SUCCESS)
		r = cuda_check_edges(data, n);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS)
		r = graph_get(graph, &g);
	if (r == CUDA_SUCCESS && s == s->ctx->legacy)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS && (s->capture || g->capture))
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS)
		r = graph_check_nodes(g, nodes, n);
	if (r == CUDA_SUCCESS)
		r = capture_begin(s, mode, g);
	return r == CUDA_SUCCESS ? capture_depend(s, (struct graph_node *const *)nodes, n, true) : r;
}

CUresult cuStreamBeginCapture(CUstream handle)
{
	return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	GIVES_GRAPH_MEMORY();
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r != CUDA_SUCCESS)
		return r;
	*out = NULL;
	return s->capture ? capture_end(s, out) : CUDA_ERROR_ILLEGAL_STATE;
}

/* What it captures ends with it. */
CUresult cuStreamDestroy_v2(CUstream handle)
{
	CONTEXT_ENTER(ctx);
	GIVES_GRAPH_MEMORY();
	DRV_LOCKED();
	if (!handle_is(handle, HANDLE_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	queue_close((struct stream *)handle);
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out)
{
	return cuStreamGetCaptureInfo_v3(handle, out, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *out, cuuint64_t *id)
{
	return cuStreamGetCaptureInfo_v3(handle, out, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
				   const CUgraphNode **dependencies, size_t *n)
{
	return cuStreamGetCaptureInfo_v3(handle, out, id, graph, dependencies, NULL, n);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
				   const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *n)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS && s == s->ctx->legacy && capture_blocking(s->ctx))
		r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; /* a mere question: that capture goes on */
	if (r != CUDA_SUCCESS)
		return r;
	*out = !s->capture	   ? CU_STREAM_CAPTURE_STATUS_NONE :
	       s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
				     CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (*out != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = (CUgraph)s->capture->graph;
	if (dependencies)
		*dependencies = (const CUgraphNode *)s->tips;
	if (edges) {
		free(s->capture->edges);
		s->capture->edges = calloc(s->n_tips + 1, sizeof(**edges));
		*edges = s->capture->edges;
	}
	if (edges && !*edges)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (n)
		*n = s->n_tips;
	return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes, size_t n, unsigned int flags)
{
	struct stream *s;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = stream_get(ctx, handle, &s);
	if (r == CUDA_SUCCESS && !s->capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (r == CUDA_SUCCESS && s->capture->invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r == CUDA_SUCCESS)
		r = graph_check_nodes(s->capture->graph, nodes, n);
	if (r != CUDA_SUCCESS)
		return r;
	return capture_depend(s, (struct graph_node *const *)nodes, n, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n,
					      unsigned int flags)
{
	CUresult r = cuda_check_edges(data, n);

	return r == CUDA_SUCCESS ? cuStreamUpdateCaptureDependencies(handle, nodes, n, flags) : r;
}
