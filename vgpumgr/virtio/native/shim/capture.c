/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that begin, end and ask about captures. */
#include "captures.h"
#include "graph.h"
#include "graph_children.h"
#include "graph_records.h"
#include "hosts.h"

SHIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult r = mode ? cuda_check_capture_mode(*mode) : CUDA_ERROR_INVALID_VALUE;

	if (r == CUDA_SUCCESS)
		*mode = shim_capture_exchange(*mode);
	return r;
}

SHIM_API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	struct vg_capture_begin_request in;
	CUgraph spoilt;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = cuda_check_capture_mode(mode);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = vg_send_capture_begin(&in);
	if (r != CUDA_SUCCESS || shim_capture_begun(in.context, in.stream, mode, 0))
		return r;
	cuStreamEndCapture(hStream, &spoilt);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

SHIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	return cuStreamBeginCapture_v2(hStream ? hStream : CU_STREAM_PER_THREAD, mode);
}

SHIM_API CUresult cuStreamBeginCapture(CUstream hStream)
{
	return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SHIM_API CUresult cuStreamBeginCapture_ptsz(CUstream hStream)
{
	return cuStreamBeginCapture_v2_ptsz(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* The worker keeps no graph with what may not be in one, the program's own neither. */
static bool is_gone(const struct vg_capture_end_request *in)
{
	struct vg_graph_list_request list = { .context = in->context, .graph = in->created };
	struct vg_graph_list_reply out;

	return vg_send_graph_list(&list, &out) == CUDA_ERROR_INVALID_HANDLE;
}

/* Its graph is known already. The worker has let it go where the capture was of no use, unless it is the program's. */
static CUresult finish(const struct vg_capture_end_request *in, struct shim_object *o, bool given, CUgraph *phGraph)
{
	struct vg_capture_finish_request end = { .context = in->context, .graph = in->created, .stream = in->stream };
	CUresult taken, r = vg_send_capture_finish(&end);

	if (r == CUDA_ERROR_ILLEGAL_STATE || r == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
		return r;
	shim_capture_ended(in->stream);
	shim_capture_forget(0, in->stream);
	taken = shim_hosts_take_captured(given ? shim_graph_all(in->created) : r == CUDA_SUCCESS ? o : NULL, !atomic_load(&shim_captures));
	if (r == CUDA_SUCCESS) {
		*phGraph = (CUgraph)in->created;
		return taken;
	}
	if ((!given || is_gone(in)) && shim_object_retire(o, in->created)) {
		shim_children_end(o, SHIM_EVERY_NODE);
		shim_hosts_drop(o);
		shim_object_recycle(SHIM_GRAPH, in->created);
	}
	return r;
}

static CUresult end(struct vg_capture_end_request *in, CUgraph *phGraph)
{
	struct shim_object *o = shim_capture_graph(in->stream, &in->created);
	bool begun = o, given;
	CUresult taken, r;

	if (begun && shim_capture_is_made(in->stream, &given))
		return finish(in, o, given, phGraph);
	if (!begun) /* the driver says why it cannot end */
		o = shim_object_new(SHIM_GRAPH, in->context, &in->created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = vg_send_capture_end(in);
	if (r == CUDA_SUCCESS)
		shim_capture_ended(in->stream);
	if (r != CUDA_ERROR_ILLEGAL_STATE && r != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
		shim_capture_forget(0, in->stream);
	if (r == CUDA_SUCCESS)
		shim_hosts_begin(o);
	taken = shim_hosts_take_captured(r == CUDA_SUCCESS ? o : NULL, !atomic_load(&shim_captures));
	if (r != CUDA_SUCCESS && !begun)
		shim_object_recycle(SHIM_GRAPH, in->created);
	if (r != CUDA_SUCCESS)
		return r;
	shim_object_publish(o, in->created);
	*phGraph = (CUgraph)in->created;
	return taken;
}

SHIM_API CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	struct vg_capture_end_request in;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !phGraph)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		*phGraph = NULL;
	if (r == CUDA_SUCCESS && shim_capture_is_of_another(in.stream))
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (r != CUDA_SUCCESS)
		return r;
	shim_capture_hold();
	r = end(&in, phGraph);
	shim_capture_let_go();
	return r;
}

SHIM_API CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	return cuStreamEndCapture(hStream ? hStream : CU_STREAM_PER_THREAD, phGraph);
}

/* Asked by frameworks before every allocation: without a capture it is answered here. */
CUresult shim_capture_ask(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *number)
{
	struct vg_capture_status_request in;
	struct vg_capture_status_reply out = { .status = CU_STREAM_CAPTURE_STATUS_NONE };
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && !status)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS && atomic_load(&shim_captures))
		r = vg_send_capture_status(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	*status = out.status;
	if (number && out.status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*number = out.number;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *status)
{
	return shim_capture_ask(hStream, status, NULL);
}

SHIM_API CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *status)
{
	return shim_capture_ask(hStream ? hStream : CU_STREAM_PER_THREAD, status, NULL);
}

SHIM_API CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return shim_capture_ask(hStream, status, id);
}

SHIM_API CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return shim_capture_ask(hStream ? hStream : CU_STREAM_PER_THREAD, status, id);
}

static CUresult read_next(uint64_t context, uint64_t stream, uint64_t graph, struct shim_next *next, size_t *count)
{
	struct shim_list l = { .graph = graph, .context = context, .stream = stream };
	CUresult r;

	*count = 0;
	do {
		if (!shim_capture_next(context, stream, *count, next))
			return CUDA_ERROR_OUT_OF_MEMORY;
		l.a = next->nodes;
		r = shim_list_read(&l, next->room, count);
	} while (r == CUDA_SUCCESS && *count > next->room);
	return r;
}

/*
 * The handle that the graph will have when the capture ends. Of what is in it, the nodes that the stream's next one depends on
 * can be read before, and what those depend on.
 */
SHIM_API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
					    CUgraph *graph, const CUgraphNode **dependencies,
					    const CUgraphEdgeData **edges, size_t *count)
{
	uint64_t context, stream, made = 0;
	struct shim_next next = { NULL, NULL, 0 };
	cuuint64_t number = 0;
	size_t found = 0;
	CUresult r = shim_capture_ask(hStream, status, &number);

	if (r != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return r;
	if (id)
		*id = number;
	r = shim_enter(&context);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &context, &stream);
	if (r == CUDA_SUCCESS && (graph || dependencies || edges || count))
		made = shim_capture_graph_of(stream, number);
	if (made && (graph || dependencies))
		shim_capture_make(made); /* where the worker cannot, such a graph is only named */
	if (r == CUDA_SUCCESS && graph)
		*graph = (CUgraph)made;
	if (r == CUDA_SUCCESS && (dependencies || edges || count))
		r = read_next(context, stream, made, &next, &found);
	if (r != CUDA_SUCCESS)
		return r;
	if (dependencies)
		*dependencies = next.nodes;
	if (edges)
		*edges = next.edges;
	if (count)
		*count = found;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
						 CUgraph *graph, const CUgraphNode **dependencies,
						 const CUgraphEdgeData **edges, size_t *count)
{
	return cuStreamGetCaptureInfo_v3(hStream ? hStream : CU_STREAM_PER_THREAD, status, id, graph, dependencies, edges,
					 count);
}

SHIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
					    CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
	return cuStreamGetCaptureInfo_v3(hStream, status, id, graph, dependencies, NULL, count);
}

SHIM_API CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
						 CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
	return cuStreamGetCaptureInfo_v2(hStream ? hStream : CU_STREAM_PER_THREAD, status, id, graph, dependencies, count);
}
