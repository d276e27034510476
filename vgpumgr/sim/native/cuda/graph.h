/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: nodes and what they wait for. A launch puts a graph's nodes into the launching stream, one after another in an
 * order that keeps the edges, by the same functions that a program calls. All of it is under drv.lock, but a launch, which
 * runs on what nobody may change meanwhile.
 */
#ifndef VGPUMGR_CUDA_GRAPH_H
#define VGPUMGR_CUDA_GRAPH_H

#include "cuda_sim.h" /* first: it makes the functions of cuda.h visible */

#include <graph_block.h>
#include <user_object.h>

#include "condition.h"
#include "graph_memory.h"

struct graph_kernel {
	CUfunction function;
	unsigned grid[3], block[3], shared;
	struct cuda_launch_options options;
	struct cuda_stream_attributes tuning; /* this and what follows: kept for who asks */
	CUclusterSchedulingPolicy scheduling;
	unsigned int carveout;
	size_t n_params, bytes;
	void **params;  /* pointers into the bytes behind them; one allocation */
};

struct graph_node {
	struct graph *graph;
	struct graph_node *next;
	unsigned int number;    /* below its graph, in the order of creation */
	uint64_t id, origin;    /* origin: of the node that this one is a copy of, else its own */
	CUgraphNodeType type;
	bool disabled;          /* in an executable graph */
	struct graph_node **deps;
	size_t n_deps;
	size_t waits;           /* while nodes are put in order */
	union {
		struct graph_kernel kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS memset;
		CUDA_HOST_NODE_PARAMS host;
		struct graph *child;
		struct graph_conditional conditional;
		CUevent event;
		struct graph_memory memory;
	};
};

struct graph {
	struct graph_node *nodes, **last;
	size_t n_nodes;
	unsigned int number, numbered; /* its own, and how many nodes got one */
	struct graph_node *parent; /* the node that this is the child graph or a body of */
	struct capture *capture;   /* being captured: nothing may be taken out of it */
	bool hidden;               /* of an executable graph: a program has no handles of it */
	struct user_objects objects; /* copies hold them, too */
	struct graph_blocks blocks;  /* of no copy: there is none of a graph that has some */
	struct condition *conditions; /* handles that were made for it */
};

struct graph_exec {
	struct graph *graph;
	cuuint64_t flags;
	unsigned int number;
	CUevent done;              /* of the last launch: two of the same executable graph never overlap */
	bool launched;
	struct graph_blocks blocks;
};

/* The graphs inside of a node, one by one; NULL: no more. */
static inline struct graph *node_inner(const struct graph_node *n, size_t i)
{
	if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return i < n->conditional.size ? n->conditional.bodies[i] : NULL;
	return n->type == CU_GRAPH_NODE_TYPE_GRAPH && !i ? n->child : NULL;
}

/* graph.c; with drv.lock held */
/* Of graphs, executable ones among them: none has the number of another. */
unsigned int graph_next_number(void);
struct graph *graph_new(bool hidden);
void graph_free(struct graph *g);
/* A copy of the nodes and their edges; NULL: out of memory. */
struct graph *graph_copy(const struct graph *g, bool hidden);
/* A copy becomes a graph of its own: its nodes are nobody's likeness any more. */
void graph_rename(struct graph *g);
/* Takes over what `made` holds; NULL: out of memory, and it is freed. */
struct graph_node *graph_add(struct graph *g, const struct graph_node *made, struct graph_node *const *deps, size_t n);
int node_depend(struct graph_node *node, struct graph_node *on);
bool node_depends_on(const struct graph_node *node, const struct graph_node *on);
/* Whether it comes after `on` by any path. */
bool node_follows(const struct graph_node *node, const struct graph_node *on);
void node_clear(struct graph_node *node);
/* A likeness of a conditional node has bodies of its own; false: out of memory, and it has nothing. */
bool conditional_copy(struct graph_node *to, const struct graph_node *from);
/* Whether it is so of any node of the graph, or inside of it. */
bool graph_any_inside(const struct graph *g, bool (*is)(const struct graph_node *));
/* Whether any is a conditional one; whether a stream captures into the graph or into one inside of it. */
bool graph_decides(const struct graph *g);
bool graph_is_captured(const struct graph *g);
CUresult graph_get(CUgraph handle, struct graph **out);
CUresult node_get(CUgraphNode handle, struct graph_node **out);
/* Dependencies as a program passes them: nodes of that graph, none of them twice. */
CUresult graph_check_nodes(const struct graph *g, const CUgraphNode *nodes, size_t n);

/* graph_objects.c */
/* What the graphs of an executable one hold is let go of once its last launch has ended; `done`: NULL, or its event. */
void graph_let_go(struct graph *g, CUevent done);

/* Memory that no graph has any more, until graph_memory_give() gives it back. */
extern struct graph_block *graph_memory_ended;
void graph_memory_end(struct graph_block *ended);
/* graph_allocations.c; without drv.lock */
void graph_memory_give(void);
static inline void graph_memory_give_then(const int *unused)
{
	(void)unused;
	graph_memory_give();
}
/* Before DRV_LOCKED(): when that is unlocked. */
#define GIVES_GRAPH_MEMORY() __attribute__((cleanup(graph_memory_give_then))) const int gives_ = 0
/* In a stream that captures. */
CUresult capture_allocation(CUstream stream, size_t size, CUdeviceptr *out);
/* The same of a free, with drv.lock held. */
CUresult capture_free(struct stream *s, CUdeviceptr address);

/* graph_exec.c */
/* What a graph's node has become in an executable one. */
CUresult exec_node(CUgraphExec handle, CUgraphNode node, struct graph_node **out);
/* Puts all nodes of an executable graph into the stream. Call it without drv.lock, while no other thread changes the graph. */
CUresult graph_launch_nodes(struct graph *g, CUstream stream);

/* stream_memory.c; without drv.lock, and the caller owns what is made */
CUresult memory_make(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old,
		     struct graph_memory *made);
CUresult memory_launch(const struct graph_memory *m, CUstream stream);

/* launch.c; without drv.lock, and the caller owns what is made */
CUresult make_launch(CUfunction handle, const CUlaunchConfig *config, struct cuda_launch_options options, void **params, void **extra,
		     struct graph_node *made);

#endif
