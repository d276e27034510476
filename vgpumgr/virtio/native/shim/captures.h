/* SPDX-License-Identifier: Apache-2.0 */
/* What other calls must know of streams that capture. */
#ifndef VGPUMGR_SHIM_CAPTURE_H
#define VGPUMGR_SHIM_CAPTURE_H

#include "shim.h"

/* Begun by this process and not ended. */
extern _Atomic uint32_t shim_captures;
/* The error of what was posted to the channel just now, or before. */
CUresult shim_capture_settle(unsigned channel);
/* Before a call that CUDA documents as potentially unsafe: an error where this thread may not make it now. */
CUresult shim_capture_safe(void);
/* Whether the stream captures; *r: what is wrong with it. */
bool shim_capturing(uint64_t context, uint64_t stream, CUresult *r);
/* For work that cannot be in a graph over this channel: an error, told once, if the stream captures. */
CUresult shim_capture_refuse(uint64_t context, uint64_t stream, const char *what, atomic_flag *told);
/* The capture is of no use any more: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult shim_capture_spoil(uint64_t context, uint64_t stream);
/* One was begun by this thread, and a graph's handle is kept for it; false: out of memory. */
/* `given`: the graph that it captures into, or 0. */
bool shim_capture_begun(uint64_t context, uint64_t stream, CUstreamCaptureMode mode, uint64_t given);
/* It is not relaxed, so the thread that has begun it must end it; and that is not this one. */
bool shim_capture_is_of_another(uint64_t stream);
/* This thread's mode from now on; what it was. */
CUstreamCaptureMode shim_capture_exchange(CUstreamCaptureMode mode);
/* The graph that the capture of this stream will be; NULL: it has begun none. */
struct shim_object *shim_capture_graph(uint64_t stream, uint64_t *id);
/* That graph is one to the worker, too, from now on. */
CUresult shim_capture_make(uint64_t graph);
/* Around the end of a capture: no thread makes its graph one to the worker meanwhile. */
void shim_capture_hold(void);
void shim_capture_let_go(void);
/* Whether it is; and whether it was the program's before. */
bool shim_capture_is_made(uint64_t stream, bool *given);
/* capture.c: asked only while any capture goes on. */
CUresult shim_capture_ask(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *number);
/* It has become one. */
void shim_capture_ended(uint64_t stream);
/* The graph of the capture that this stream takes part in, by the number that the driver gives it; 0: unknown. */
uint64_t shim_capture_graph_of(uint64_t stream, uint64_t number);
/* A stream that captures into a graph that has this handle; false: none does. */
bool shim_capture_of_graph(uint64_t graph, uint64_t *context, uint64_t *stream);
/* Whether a stream captures into a graph inside of this one. */
bool shim_capture_inside(uint64_t graph);
/* Room for what a stream's next node depends on, and for edges to it. It stays until the stream needs more, or is no more. */
struct shim_next {
	CUgraphNode *nodes;
	const CUgraphEdgeData *edges;
	size_t room;
};
/* false: out of memory. */
bool shim_capture_next(uint64_t context, uint64_t stream, size_t room, struct shim_next *out);
void shim_capture_next_forget(uint64_t context, uint64_t stream);
/* Why such a graph cannot be used: it is being captured, or there is none. */
CUresult shim_capture_no_graph(uint64_t id);
/* A stream or a context (the other is 0) is no more. */
void shim_capture_forget(uint64_t context, uint64_t stream);

#define SHIM_CAPTURE_REFUSE(context, stream, what)                          \
	({                                                                  \
		static atomic_flag told_ = ATOMIC_FLAG_INIT;                \
		shim_capture_refuse(context, stream, what, &told_);         \
	})

#endif
