/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs need of this process at each launch: functions of the program, and its memory for copies. */
#ifndef VGPUMGR_SHIM_HOSTS_H
#define VGPUMGR_SHIM_HOSTS_H

#include "graph_records.h"
#include "shim.h"

/* Gates of graphs, in contrast to those of host functions in streams. */
#define SHIM_GRAPH_GATE (1ull << 63)

enum shim_host_kind { SHIM_HOST_FUNCTION, SHIM_HOST_READ, SHIM_HOST_WRITTEN, SHIM_HOST_BOTH };

/* A function, or a copy of which the side that is read, that is written, or both are memory of the program. */
struct shim_host {
	enum shim_host_kind kind;
	uint64_t context;
	CUhostFn function;
	void *data;
	struct cuda_copy copy;
};

/* A graph, or an executable one, as it begins: it has nothing. */
static inline void shim_hosts_begin(struct shim_object *graph)
{
	graph->graph.hosts = NULL;
	graph->graph.objects = (struct user_objects){ 0 };
	graph->graph.launched = NULL;
	shim_records_begin(graph);
}
/* Kept for a graph or an executable one, as long as that may be launched. 0: out of memory. */
uint64_t shim_host_keep(struct shim_object *graph, const struct shim_host *what);
/* What was kept under that number; false: nothing is any more. */
bool shim_host_find(uint64_t number, struct shim_host *what);
/* What guards all of this, for user objects. */
void shim_hosts_lock(void);
void shim_hosts_unlock(void);
/* All that one has, for another; user objects as well, here and below. */
CUresult shim_hosts_share(const struct shim_object *from, struct shim_object *to);
void shim_hosts_drop(struct shim_object *graph);
/* user_objects_launch.c: an executable graph that holds user objects was launched. */
void shim_user_objects_launched(struct shim_object *exec, const struct vg_graph_launch_request *in, CUstream stream);
/* The same for captures, of which nobody knows which will have it; ended: all captures have. */
CUresult shim_hosts_captured(const struct shim_object *launched);
CUresult shim_hosts_take_captured(struct shim_object *graph, bool ended);
/* What a launch needs, until it is done; NULL: nothing, or *r tells why not. */
void *shim_hosts_launch(const struct shim_object *exec, CUresult *r);
void shim_hosts_launched(void *held);
/* On the thread that serves gates: does what the gate stands for. */
void shim_host_run(uint64_t gate, CUresult status);

/* Into a stream that captures: a node, which waits for what the stream has captured. */
CUresult shim_capture_host(uint64_t stream, const struct shim_host *what);
/* A copy whose sides are told by the kind. */
static inline struct shim_host shim_host_copy(uint64_t context, const struct cuda_copy *copy, bool to_device, bool from_device)
{
	return (struct shim_host){ to_device ? SHIM_HOST_READ : from_device ? SHIM_HOST_WRITTEN : SHIM_HOST_BOTH, context,
				   NULL, NULL, *copy };
}

#endif
