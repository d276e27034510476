/* SPDX-License-Identifier: Apache-2.0 */
/* All that one guest process has. */
#ifndef VGPUMGR_SESSION_H
#define VGPUMGR_SESSION_H

#include <stdatomic.h>

#include "worker.h"

struct wk_slot {
	struct wk_object *object;
	uint32_t generation;
};

struct wk_table {
	struct wk_slot *slots;
	uint32_t count, room;
};

struct wk_upload {
	uint32_t number;
	uint8_t *image;
	uint64_t filled, total;
};

/* A call with copies of all that it came with. */
struct wk_job {
	struct wk_job *next;
	struct vg_lane *lane;
	const struct wk_operation *operation;
	wk_runner *run;
	struct vg_call call;
	size_t bytes;
	uint8_t data[];                /* payload, then bulk from the guest */
};

struct wk_gate;

struct wk_session {
	struct vg_lane *lane;
	pthread_mutex_t lock;
	struct wk_table tables[WK_TABLES];
	struct {
		struct wk_object **at; /* by address */
		size_t count, room;
		size_t out;            /* how many of them are out, to be swept */
		uint64_t bytes;
	} ledger;
	struct wk_span {
		struct wk_object **at; /* by address, without overlaps */
		size_t count, room;
	} spaces, mappings;
	uint64_t space_bytes;          /* reserved */
	uint64_t physical_bytes;       /* of physical memory, mapped or not, and of arrays */
	CUresult deferred;             /* of the first quiet call that failed and has not been reported */
	_Atomic int violation;         /* found late; the next frame ends the session */
	struct wk_upload uploads[WK_UPLOADS];
	/* captures: capture.c */
	_Atomic uint32_t captures;     /* begun and not ended */
	uint64_t captured;             /* nodes that they may have made, charged */
	struct wk_holds capture_holds;
	struct wk_numbering *numberings; /* capture_numbers.c */
	/* calls that wait: helpers.c */
	pthread_cond_t work, idle;
	struct wk_job *first, **last;
	unsigned int jobs, helpers, sleeping;
	bool stopping;
	/* calls in their order: order.c */
	pthread_cond_t arrived, room;
	struct wk_job *queue, **queue_last;
	size_t queue_bytes;
	bool executor;                 /* its thread runs */
	_Atomic uint32_t behind;       /* calls queued or being executed in order, and gates not yet passed */
	/* host functions */
	_Atomic uint32_t hosts;        /* that graphs have */
	pthread_cond_t opened;
	struct wk_gate *gates, *reached;
	uint32_t gates_count;
	bool asked;                    /* the guest waits for a gate */
	uint32_t asked_sequence;
};

/* Under the lock: the object, held, or NULL. */
struct wk_object *wk_hold_locked(struct wk_session *session, enum wk_kind kind, uint64_t handle);
/* graph.c: numbers, 32 bits each, of nodes of that graph. */
CUresult wk_read_nodes(const struct wk_object *graph, const struct vg_bytes *in, CUgraphNode *nodes, size_t most, size_t *count);
/* ops_stream.c: the driver's parameters, made anew from what they say; each address is checked, its memory stays for the call. */
CUresult wk_read_memory_operations(struct wk_call *c, const struct vg_bytes *given, CUstreamBatchMemOpParams *list,
				   unsigned int *count, bool *waits);
/* conditional.c: the conditional node that one is; NULL: another kind of node. */
const struct wk_conditional *wk_conditional_of(const struct wk_graph *graph, CUgraphNode node);
/* Room for one with so many bodies, kept with wk_conditional_keep() once the driver has it; NULL: out of memory. */
struct wk_conditional *wk_conditional_new(uint32_t bodies);
void wk_conditional_keep(struct wk_graph *graph, struct wk_conditional *made, CUgraphNode node,
			 const CUDA_CONDITIONAL_NODE_PARAMS *params);
void wk_conditional_drop(struct wk_graph *graph, CUgraphNode node);
void wk_conditionals_free(struct wk_graph *graph);
/* Whether the guest was given that handle, for this graph or for one around it. */
bool wk_condition_is_known(const struct wk_object *graph, uint64_t condition);
/* Whether a stream captures into a graph inside of this one: of that node, or of any (WK_EVERY_NODE). */
enum { WK_EVERY_NODE = UINT32_MAX };
struct wk_use;
bool wk_captured_inside(struct wk_call *c, const struct wk_use *use, uint32_t place);
/* ops_nodes.c: whether a node is a copy with the guest's memory, which stands there as a child graph. */
bool wk_is_pair(CUgraphNode node);
/* graph_reads.c: a node has gone; its graph, if it was one, is not there any more. */
void wk_graph_drop_child(struct wk_call *c, const struct wk_object *graph, uint32_t place);
/* The guest's name of an object in a table; 0: it has been taken out. */
uint64_t wk_handle_of(struct wk_session *session, const struct wk_object *object);
/* Under the lock, or by who holds it already. */
static inline void wk_hold_again(struct wk_object *object)
{
	atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}
/* Under the lock: what it holds of device memory has changed. */
void wk_account(struct wk_session *session);
/* Destroys the driver's object; not under the lock. */
void wk_destroy(const struct wk_object *object);
/* Under the lock: enters a new object below its owner, which is not out; takes one off that is going. */
void wk_own(struct wk_object *object);
void wk_disown(struct wk_object *object);
/* A variable of a module, in contrast to an allocation. */
static inline bool wk_is_variable(const struct wk_object *memory)
{
	return memory->owner->kind == WK_MODULE;
}

#endif
