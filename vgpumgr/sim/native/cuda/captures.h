/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that capture: what is put into them becomes nodes of a graph instead of work. */
#ifndef VGPUMGR_CUDA_CAPTURE_H
#define VGPUMGR_CUDA_CAPTURE_H

#include "graph.h"

struct capture {
	struct capture *next;
	unsigned refs;           /* while it goes on, and each event */
	uint64_t id;
	CUstreamCaptureMode mode;
	pthread_t thread;
	struct stream *origin;   /* held while it goes on */
	struct graph *graph;     /* NULL: it is over */
	bool given;              /* the graph is the program's, and stays whatever comes of the capture */
	bool invalid;
	struct graph_node **left; /* what streams that are no more had captured last */
	size_t n_left;
	CUgraphEdgeData *edges;   /* as told of a stream's last nodes: all of them plain */
};

/* The nodes that what comes next waits for. */
struct capture_point {
	struct capture *capture; /* held; NULL: none */
	struct graph_node **tips;
	size_t n_tips;
};

/* capture.c */
/* Takes drv.lock. Whether work for that stream is to be captured; capture_put() then tells what is wrong with it. */
bool capture_takes(CUstream handle);
/* Takes drv.lock: adds the node behind the stream's last ones. What it holds is taken over, or freed. */
CUresult capture_put(CUstream handle, struct graph_node *made);

/* captures.c; all below with drv.lock held, but where it says so. */
bool capture_any(void);
/* As capture_put(), for a stream that captures. */
CUresult capture_add(struct stream *s, struct graph_node *made);
/* `given`: the graph to capture into, or NULL. */
CUresult capture_begin(struct stream *s, CUstreamCaptureMode mode, struct graph *given);
CUresult capture_end(struct stream *s, CUgraph *out);
/* What comes next waits for these nodes, too or only. */
CUresult capture_depend(struct stream *s, struct graph_node *const *nodes, size_t n, bool only);
/* A capture in one of the streams that the legacy one waits for. */
struct capture *capture_blocking(const struct context *ctx);
/* The thread's mode from now on; what it was. Without the lock. */
CUstreamCaptureMode capture_exchange(CUstreamCaptureMode mode);
/* The code of an operation on a stream that is not to be captured; a capture that it would touch is invalid from then on. */
CUresult capture_refuse(struct stream *s);
/* The same for what concerns all streams of a context. */
CUresult capture_refuse_context(struct context *ctx);
/* A call that a thread may not make while some captures are going on, as it wants and as they were begun. Takes drv.lock. */
CUresult capture_unsafe(void);
/* An event's own point: recorded in a capturing stream, waited for by one. */
CUresult capture_record(struct stream *s, struct capture_point *event);
CUresult capture_wait(struct stream *s, const struct capture_point *event);
/* Of an event that is asked for: captured events have no state. */
CUresult capture_refuse_event(const struct capture_point *event);
void capture_point_clear(struct capture_point *event);
/* The stream ends. */
void capture_leave(struct stream *s);

#define CAPTURE_SAFE()                            \
	do {                                      \
		CUresult r_ = capture_unsafe();   \
		if (r_ != CUDA_SUCCESS)           \
			return r_;                \
	} while (0)

#endif
