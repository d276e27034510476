/* SPDX-License-Identifier: Apache-2.0 */
/* Captures into graphs that are there, and what comes next in a stream that captures. */
#include "captures.h"
#include "graph_handles.h"

enum { AT_ONCE = 256 };

/* Their numbers, all of that graph. */
static CUresult read_nodes(uint64_t graph, const CUgraphNode *nodes, size_t count, uint32_t *numbers)
{
	struct shim_node node;
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		r = shim_node(nodes[i], &node);
		if (r == CUDA_SUCCESS && node.graph != graph)
			r = CUDA_ERROR_INVALID_VALUE;
		numbers[i] = node.number;
	}
	return r;
}

/* In as many frames as they need; at least one. */
static CUresult depend(struct vg_capture_depend_request *in, const CUgraphNode *nodes, size_t count)
{
	uint32_t numbers[AT_ONCE];
	size_t at = 0, n;
	CUresult r;

	do {
		n = count - at < AT_ONCE ? count - at : AT_ONCE;
		r = read_nodes(in->graph, nodes + at, n, numbers);
		in->dependencies = (struct vg_bytes){ numbers, 4 * n };
		if (r == CUDA_SUCCESS)
			r = vg_send_capture_depend(in);
		in->only = 0;
		at += n;
	} while (r == CUDA_SUCCESS && at < count);
	return r;
}

static CUresult update(CUstream hStream, const CUgraphNode *nodes, size_t count, unsigned int flags)
{
	struct vg_capture_depend_request in = { .only = flags };
	CUstreamCaptureStatus status;
	cuuint64_t number = 0;
	CUresult r = flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES ? CUDA_ERROR_INVALID_VALUE :
								  shim_capture_ask(hStream, &status, &number);

	if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		r = status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r == CUDA_SUCCESS && count && !nodes)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_enter(&in.context);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r != CUDA_SUCCESS)
		return r;
	in.graph = shim_capture_graph_of(in.stream, number);
	r = shim_capture_make(in.graph);
	return r == CUDA_SUCCESS ? depend(&in, nodes, count) : r;
}

SHIM_API CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
						    unsigned int flags)
{
	return update(hStream, dependencies, numDependencies, flags);
}

SHIM_API CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
							 unsigned int flags)
{
	return update(hStream ? hStream : CU_STREAM_PER_THREAD, dependencies, numDependencies, flags);
}

SHIM_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
						       const CUgraphEdgeData *dependencyData, size_t numDependencies,
						       unsigned int flags)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (cuda_check_edges(dependencyData, numDependencies) != CUDA_SUCCESS)
		return shim_unsupported("data of a graph's edges", &told);
	return update(hStream, dependencies, numDependencies, flags);
}

SHIM_API CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies,
							    const CUgraphEdgeData *dependencyData, size_t numDependencies,
							    unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies_v2(hStream ? hStream : CU_STREAM_PER_THREAD, dependencies, dependencyData,
						    numDependencies, flags);
}

/* ---- into a graph that is there */

static CUresult begin(CUstream hStream, CUgraph hGraph, const CUgraphNode *nodes, size_t count, CUstreamCaptureMode mode)
{
	size_t first = count < AT_ONCE ? count : AT_ONCE;
	struct vg_capture_into_request in;
	struct vg_capture_depend_request more = { .only = 0 };
	uint32_t numbers[AT_ONCE];
	CUgraph spoilt;
	CUresult r = cuda_check_capture_mode(mode);

	if (r == CUDA_SUCCESS)
		r = shim_enter(&in.context);
	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS)
		r = shim_graph(hGraph, &in.graph);
	if (r == CUDA_SUCCESS && count && !nodes)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = read_nodes(in.graph, nodes, first, numbers);
	if (r != CUDA_SUCCESS)
		return r;
	in.dependencies = (struct vg_bytes){ numbers, 4 * first };
	r = vg_send_capture_into(&in);
	if (r != CUDA_SUCCESS)
		return r;
	if (!shim_capture_begun(in.context, in.stream, mode, in.graph))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	more.context = in.context, more.stream = in.stream, more.graph = in.graph;
	if (r == CUDA_SUCCESS && count > first)
		r = depend(&more, nodes + first, count - first);
	if (r != CUDA_SUCCESS)
		cuStreamEndCapture(hStream, &spoilt);
	return r;
}

SHIM_API CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
					      const CUgraphEdgeData *dependencyData, size_t numDependencies,
					      CUstreamCaptureMode mode)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	CUresult r = cuda_check_edges(dependencyData, numDependencies);

	if (r == CUDA_SUCCESS)
		r = begin(hStream, hGraph, dependencies, numDependencies, mode);
	return r == CUDA_ERROR_NOT_SUPPORTED ? shim_unsupported("a capture into such a graph, or with such edges,", &told) : (int)r;
}

SHIM_API CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
						   const CUgraphEdgeData *dependencyData, size_t numDependencies,
						   CUstreamCaptureMode mode)
{
	return cuStreamBeginCaptureToGraph(hStream ? hStream : CU_STREAM_PER_THREAD, hGraph, dependencies, dependencyData,
					   numDependencies, mode);
}
