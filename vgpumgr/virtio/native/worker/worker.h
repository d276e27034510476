/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's process executes what one guest process asks, on a driver that it loads. Everything from a guest is hostile:
 * payloads are decoded from private copies, handles resolved in typed tables, addresses checked against a ledger. What
 * breaks the process all the same ends that session only; the worker's other process, which starts it, runs none of this.
 *
 * Objects (and device allocations) are counted: a table or the ledger holds one reference, each running call its own,
 * each object one on its owner (a function's is its module, a module's its context; pools, contexts, physical and virtual memory have none), and the driver's object ends with the
 * last one. So a function keeps its module loaded, and a call that waits on one thread is safe from a destroy on another.
 *
 * Locks. A session's lock guards its tables, its ledger, who owns what in them, and its queues. What is taken out of a
 * table is taken out in one go with all that it owns, and nothing is put below an owner that is out: so nobody finds half
 * of a context. The driver is never called under the lock; references are given back without it, because the last one
 * calls the driver. Only lane locks are taken under it. tests/sanitize runs all of this under the thread sanitizer.
 *
 * Threads. The lane's reader executes calls, those marked as blocking excepted, which helpers do. While a host function of
 * the guest is outstanding, any call of the driver may wait for it: then the reader only reads, and one thread of the
 * session executes calls in their order (see order.c). What ends only when the device is done with it, memory above all, ends
 * on one more thread (see frees.c).
 */
#ifndef VGPUMGR_WORKER_H
#define VGPUMGR_WORKER_H

#include <cuda.h>
#include <pthread.h>
#include <transport.h>

#include "vg_driver.h"
#include "vg_ops.h"

enum wk_kind { WK_CONTEXT, WK_STREAM, WK_EVENT, WK_MODULE, WK_FUNCTION, WK_POOL, WK_PHYSICAL, WK_GRAPH, WK_GRAPH_EXEC,
	       WK_ARRAY, WK_MIPMAP, WK_TEXTURE, WK_SURFACE, WK_MATH, WK_TABLES, WK_MEMORY = WK_TABLES, WK_SPACE, WK_MAPPING, WK_HOST };

enum {
	WK_QUIET = 1,
	WK_IN_CONTEXT = 2,
	WK_BLOCKING = 4,
	WK_RUN_AFTER_ERROR = 8,
	WK_BULK_IN = 16,
	WK_BULK_OUT = 32,
	WK_WORK = 64,             /* puts work on the device's engines: waits for a turn where the GPU is shared */
};

enum {
	WK_TABLE_AHEAD = 4096,    /* slots that a new handle may be beyond the table's end */
	WK_PARAMETERS = 1024,
	WK_PARAMETERS_BYTES = 32764, /* CUDA's own limit */
	WK_UPLOADS = 16,
	WK_ALLOCATIONS = 1 << 20,
	WK_SPACES = 1 << 16,      /* reservations of addresses of one guest process */
	WK_MAPPINGS = 1 << 20,
	WK_STACK_BYTES = 2 << 20, /* of threads that call the driver, and libraries of mathematics */
	WK_HELPERS = 64,          /* threads that wait for one guest process */
	WK_JOBS = 4096,
	WK_QUEUE_BYTES = 64 << 20, /* of calls behind a host function; then the reader waits */
	WK_FREES = 4096,          /* of memory, modules and graphs that are on their way; then each is waited for */
	WK_GATES = 4096,          /* host functions that wait in streams */
	WK_NODES = 1 << 20,       /* and edges, of all graphs of one guest process, executable ones and child graphs included */
	WK_HOSTS = 16384,         /* functions and copies of the guest's in them */
	WK_BODIES = 256,          /* of one conditional node */
	WK_DEPTH = 64,            /* of bodies inside of one another */
};

#define WK_SPACE_BYTES (1ull << 44) /* addresses that one guest process may have reserved */
#define WK_IMAGES_BYTES (1ull << 30) /* module images being received, of one guest process */
#define WK_STAGING_BYTES (1ull << 30) /* for copies in graphs between the guest's memory and the device, all together */

struct wk_parameter {
	uint32_t offset, size;
};

struct wk_object {
	enum wk_kind kind;
	_Atomic uint32_t references;  /* taken under the session's lock or from one that is held; given back anywhere */
	struct wk_object *owner;      /* held: of a function or a variable its module, of a level its array, else the context; NULL for a context */
	struct wk_object *context;    /* the owner, or its owner; the object itself for a context */
	void *driver;                 /* CUcontext, CUstream, ... */
	uint64_t number;              /* of a context: never used again, unlike its address; of a host node the guest's; of a mipmapped array its levels */
	uint64_t pool;                /* of memory: the number of the pool that it is from, else 0 */
	uint64_t address;             /* of memory; of a host node that copies, the worker's own */
	uint64_t bytes;               /* of device memory that it takes: see wk_charge() */
	struct wk_object *space, *physical; /* of a mapping, held: the addresses that it lies in, and its memory */
	_Atomic bool accessible;      /* of a mapping */
	struct wk_graph *graph;       /* of a graph or an executable one */
	struct wk_shared *_Atomic shared; /* of memory, an event or a pool that other processes have, too: ipc.h */
	struct cuda_array *array;     /* of an array or a mipmapped one: what it is made of */
	union {
		struct wk_session *capturing; /* of a stream in which a capture was begun */
		struct wk_session *session;   /* of a host node, of physical memory, of an array: whose it is */
	};
	_Atomic uint64_t threshold;   /* of a pool, as the guest has set it: see ops_pool.c */
	/* share.c: the work that it has on the device, as a stream or as a context with its default stream */
	_Atomic bool marked;          /* it is in the list, and will be asked after what is launched now */
	_Atomic uint32_t held;        /* host functions that hold the stream now */
	_Atomic uint32_t last;        /* enum wk_last: what was put into it last */
	struct wk_object *next_queued;
	CUevent mark;                 /* behind its work, where a capture has begun; NULL: none was made; ends with the object */
	CUevent before;               /* the same of the last wait for memory, recorded before it */
	bool queued, works, has_mark; /* under the list's lock */
	struct wk_object *next_gone;  /* of those that have left the list: its thread's alone */
	/* under the session's lock */
	struct wk_object *owned, *next, **link; /* what is owned and in a table; the neighbours below the same owner */
	uint32_t slot;
	_Atomic bool lent;            /* a pool that is the driver's own, a capture's graph, a child graph or a body: not destroyed */
	bool out;                     /* of its table: it owns nothing any more */
	uint32_t parameters_count, parameters_bytes;
	struct wk_parameter parameters[];
};

struct wk_call {
	struct wk_session *session;
	struct vg_lane *lane;
	const struct vg_call *call;
	const struct wk_operation *operation;
	struct wk_object *context;    /* the one that the call runs in */
	struct wk_object *pinned[2];  /* memory that it reads or writes */
	struct wk_object **spans;     /* the same, where a range is made of more mappings than one */
	size_t spans_count;
	size_t bulk_filled;
	bool sharing;                 /* it may put work on the device now: see share.h */
	bool answered;                /* or will be, by another thread */
	bool reader;                  /* runs where calls are read: waits briefly at most */
	bool unfinished;              /* goes on elsewhere */
	bool started;                 /* the driver has it: only the wait goes on */
	int violation;                /* negative errno */
};

struct wk_operation {
	const char *name;
	int (*handle)(struct wk_call *c, bool check_only);
	unsigned int flags;
};

/* ---- driver.c */
struct wk_driver {
#define WK_DRIVER_FUNCTION(name) __typeof__(&name) name;
#include "driver_names.h"
};
extern struct wk_driver wk_driver;
/* Loads the driver at `path` and starts it. 0, or -ENODEV and a message. */
int wk_driver_load(const char *path, char *message, size_t size);
/* Asks what each guest process asks first: the pages of code and driver are there by then. */
void wk_rehearse(void);

/* ---- sessions.c */
struct wk_session *wk_session_create(struct vg_lane *lane);
void wk_session_destroy(struct wk_session *session);

/* ---- objects.c */
CUresult wk_hold(struct wk_call *c, enum wk_kind kind, uint64_t handle, struct wk_object **object);
void wk_release(struct wk_object *object);
bool wk_is_last(struct wk_object *object);
static inline void wk_release_held(struct wk_object **object)
{
	if (*object)
		wk_release(*object);
	*object = NULL; /* by hand, and again where its scope ends */
}
#define WK_HELD __attribute__((cleanup(wk_release_held)))
static inline void *wk_raw(const struct wk_object *object)
{
	return object ? object->driver : NULL;
}
/* Takes the slot that the guest has chosen; -EPROTO: not its to choose. */
int wk_reserve(struct wk_call *c, enum wk_kind kind, uint64_t handle);
/*
 * Puts a new driver object of the call's context, charged with `bytes`, into its reserved slot; on failure the object is
 * destroyed.
 */
CUresult wk_fill(struct wk_call *c, enum wk_kind kind, uint64_t handle, void *driver, uint64_t bytes);
/* As wk_fill, for an object made by the caller. */
CUresult wk_put(struct wk_call *c, uint64_t handle, struct wk_object *object);
/* NULL: out of memory. `owner` is NULL for a context. */
struct wk_object *wk_object_new(enum wk_kind kind, struct wk_object *owner, void *driver, uint32_t parameters);
/* Takes the object and all that it owns out of the tables and the ledger, then destroys what is not in use. */
CUresult wk_remove(struct wk_call *c, enum wk_kind kind, uint64_t handle);
/* The same for all that the session has. */
void wk_remove_all(struct wk_session *session);
int wk_set_current(struct wk_object *context);
/* The driver has changed what is current on this thread. */
void wk_forget_current(void);

/* ---- window.c */
/* Whether copies to the host go to registered memory, so that to begin one waits for nothing. */
bool wk_window_ready(void);
/*
 * Where the driver is to put what the call copies to the host: the call's bulk, at the address that is registered. Where there
 * is none, a copy may wait: then c->unfinished says that it is not begun where calls are read.
 */
void *wk_window_target(struct wk_call *c);
/* For the stream's work; only briefly where calls are read: then c->unfinished says that more is to be waited for. */
CUresult wk_wait_stream(struct wk_call *c, CUstream stream);
CUresult wk_wait_event(struct wk_call *c, CUevent event);

/* ---- frees.c: ends that may wait for the device, for which nobody shall wait where calls are read */
void wk_release_later(struct wk_object *object);
void wk_frees_serve(struct vg_lane *lane);
/* As wk_remove(), with such ends. */
CUresult wk_remove_later(struct wk_call *c, enum wk_kind kind, uint64_t handle);
/* ---- pending.c: how many such ends are on their way */
/* One more; false: there are too many. */
bool wk_pending_begin(void);
void wk_pending_end(void);
bool wk_pending_any(void);
/* Until all that are on their way have ended; whether there were any. */
bool wk_frees_wait(void);
/* ---- freed.c: what is freed in the order of a stream, and charged until the stream gets there */
/* The driver has taken it; its charge goes from the object to what waits for the stream. */
void wk_freed_in_order(struct wk_object *memory, CUstream stream);
/* The driver's context has gone, and calls nothing any more. */
void wk_freed_with(const struct wk_object *context);
/* Whether an allocation may have to wait for streams: then not where calls are read. */
bool wk_freed_any(void);
/* Until a stream gets to one of them; false: there are none, or it is late. */
bool wk_freed_wait(void);
/* A call of the driver that takes memory. What is on its way back is waited for before there is none. */
#define WK_WITH_ROOM(call)                                                       \
	({                                                                       \
		CUresult room_ = (call);                                         \
		room_ == CUDA_ERROR_OUT_OF_MEMORY && wk_frees_wait() ? (call) : room_; \
	})

/* ---- charges.c: an object against the limits of the VM */
/* One more object of that kind, which takes so many bytes of device memory; before the driver is asked. */
CUresult wk_charge(enum wk_kind kind, uint64_t bytes);
void wk_refund(enum wk_kind kind, uint64_t bytes);
/* The driver's result; gives the charge back if that is an error. */
static inline CUresult wk_charged(enum wk_kind kind, uint64_t bytes, CUresult r)
{
	if (r != CUDA_SUCCESS)
		wk_refund(kind, bytes);
	return r;
}
/* What a context takes before anything is in it; drivers take about as much, and nobody can ask them before. */
#define WK_CONTEXT_BYTES (128ull << 20)

/* ---- ipc.c: what other processes of the guest have, too */
/* Others can open it no more. What they have opened, they keep. */
void wk_ipc_withdraw(struct wk_object *object);
/* Whether it is another process's. */
bool wk_ipc_is_opened(const struct wk_object *object);
/* Before the driver's end of what is this process's; after it, of another's. */
void wk_ipc_end(const struct wk_object *object);

/* ---- ledger.c */
/* What is remembered is destroyed with its owner, a context or a module, or by wk_ledger_take() and wk_release(). */
CUresult wk_ledger_add(struct wk_call *c, struct wk_object *owner, uint64_t address, uint64_t bytes);
/* Of another process's memory only with `opened`, of this process's without: the one is closed, the other freed. */
CUresult wk_ledger_take(struct wk_call *c, uint64_t address, bool opened, struct wk_object **memory);
/* As wk_ledger_add, of an object that the caller has made; refused, it is destroyed. */
CUresult wk_ledger_enter(struct wk_call *c, struct wk_object *memory);
/* The allocation of the call's context that the address lies in, held; NULL: there is none. */
struct wk_object *wk_ledger_hold(struct wk_call *c, uint64_t address);
/* One of the call's context for which `is` says yes, held. */
struct wk_object *wk_ledger_search(struct wk_call *c, bool (*is)(const struct wk_object *, const void *), const void *what);
/* rows x (count * factor) bytes, pitch apart, lie in one allocation of the call's context, which stays for the call. */
CUresult wk_check_range(struct wk_call *c, uint64_t address, uint64_t count, uint64_t factor, uint64_t rows,
			uint64_t pitch);
/* Under the lock: drops what is out, in one pass. */
void wk_ledger_sweep(struct wk_session *session);

/* One more that stays for the call. */
bool wk_span_add(struct wk_call *c, struct wk_object *memory);
/* The memory that wk_check_range() has pinned. */
void wk_unpin(struct wk_call *c);

/* ---- virtual.c: reserved addresses, and what is mapped there. Both end with the last reference: a call that copies keeps its own. */
/* Enters what the driver has reserved; on failure it is given back. */
CUresult wk_space_add(struct wk_call *c, uint64_t address, uint64_t bytes);
/* Takes out exactly that one, in which nothing may be mapped any more. */
CUresult wk_space_take(struct wk_call *c, uint64_t address, uint64_t bytes);
/* Claims the addresses, in one space and free, before the driver is asked. The mapping is held for the caller. */
CUresult wk_mapping_add(struct wk_call *c, uint64_t address, uint64_t bytes, struct wk_object *physical,
			struct wk_object **mapping);
/* Takes out all that is mapped there: whole mappings, without gaps. Then the driver's end with their last references. */
CUresult wk_mapping_take(struct wk_call *c, uint64_t address, uint64_t bytes);
/* Holds all of them, in the call's spans. */
CUresult wk_mapping_hold(struct wk_call *c, uint64_t address, uint64_t bytes);
/* The same for a copy: parts of mappings, too, but only accessible ones. */
bool wk_mapping_pin(struct wk_call *c, uint64_t address, uint64_t bytes);
/* All that the session has. */
void wk_virtual_end(struct wk_session *session);

/* ---- call.c */
int wk_call(void *session, struct vg_lane *lane, const struct vg_call *call);
CUresult wk_begin(struct wk_call *c, uint64_t context);
int wk_finish(struct wk_call *c, CUresult result, const void *data, size_t length);

/* ---- jobs.c, helpers.c, order.c: calls on other threads than the reader */
typedef void wk_runner(struct wk_session *session, struct vg_lane *lane, const struct vg_call *call,
		       const struct wk_operation *operation);
/* A copy of the call, for `run`; NULL: out of memory. */
struct wk_job *wk_job_new(struct vg_lane *lane, const struct vg_call *call, const struct wk_operation *operation,
			  wk_runner *run);
/* Has a helper run the job, which is its from now on. */
int wk_offload(struct wk_session *session, struct wk_job *job);
/* Whether something is before this call that may not be waited for where calls are read. */
bool wk_is_behind(struct wk_session *session);
/* Has the job run when all before it have, and been begun if it is a blocking one; it is the queue's from now on. */
int wk_enqueue(struct wk_session *session, struct wk_job *job);
void wk_helpers_stop(struct wk_session *session);
void wk_order_stop(struct wk_session *session);

/* ---- references.c: what is held for a graph as long as it may run; only the thread that executes calls in order asks */
struct wk_holds {
	struct wk_object **at;    /* by address, each once */
	size_t count;
};
CUresult wk_holds_add(struct wk_holds *holds, struct wk_object *object);
CUresult wk_holds_add_all(struct wk_holds *to, const struct wk_holds *from);
void wk_holds_drop(struct wk_holds *holds);
/* A conditional node, and the driver's graphs that are its bodies. */
struct wk_conditional {
	struct wk_conditional *next;
	CUgraphNode node;
	CUcontext context;
	uint64_t condition;
	uint32_t kind, count;
	CUgraph bodies[];
};
struct wk_graph {
	CUgraphNode *nodes;       /* by number; NULL: destroyed. Of an executable graph: none */
	uint32_t count, room;
	uint64_t weight;          /* nodes that it is charged with */
	struct wk_holds holds;
	uint32_t place;           /* of a child graph or a body: its node's number in its owner, */
	uint32_t which;           /* and which of the node's graphs it is */
	bool body;                /* of a conditional node */
	bool broken;              /* what was captured into a body may not be in it: nothing is made of the graph any more */
	struct wk_conditional *conditionals;
	uint64_t *conditions;     /* the driver's handles, which the guest has been given; those of bodies, too */
	uint32_t conditions_count;
	uint32_t before;          /* of a body that is captured into: the nodes it had */
	uint64_t noted;           /* of the guest's own that is captured into: what all captures were charged with before */
	/* while a stream captures into it, under wk_numbers_lock; the stream by its handle, as it may go meanwhile: 0: none */
	_Atomic uint64_t stream;
	cuuint64_t capture;
	bool given;               /* it is the guest's, not the capture's */
};
/* What counts for a graph: its own, or that of the graph which it is inside of. */
static inline struct wk_graph *wk_graph_all(const struct wk_object *graph)
{
	while (graph->owner && graph->owner->kind == WK_GRAPH)
		graph = graph->owner;
	return graph->graph;
}
/* NULL: out of memory, or too many nodes. */
struct wk_graph *wk_graph_new(uint64_t weight, const struct wk_holds *holds);
void wk_graph_free(struct wk_graph *graph);
/* ---- graph.c */
/*
 * Puts a new graph, or an executable one, into its reserved slot. It takes over the driver's object and `graph`, which
 * end on failure.
 */
CUresult wk_graph_put(struct wk_call *c, enum wk_kind kind, uint64_t handle, void *driver, struct wk_graph *graph);
CUresult wk_node_of(const struct wk_object *graph, uint32_t number, CUgraphNode *node);
/* Numbers the nodes that the driver's graph has. */
CUresult wk_graph_number(struct wk_graph *graph, CUgraph driver);
/* Whether there may be so many more; wk_nodes_refund() then gives them back. */
bool wk_nodes_charge(uint64_t nodes);
void wk_nodes_refund(uint64_t nodes);

/* Its memory for copies between guest and device; false: too much of it. */
bool wk_staging_charge(uint64_t bytes);
void wk_staging_refund(uint64_t bytes);

/* ---- hosts.c: what graphs need of the guest at each launch */
/* A side of a copy on the device, and its shape; packed, so many bytes. */
struct wk_box {
	uint64_t number, address, pitch, slice, width, rows, slices, bytes;
	bool to_host;
};
/* One side of a copy lies in one allocation, from its first byte to its last. */
CUresult wk_check_box(struct wk_call *c, const struct wk_box *box);
/* `holds` gets what stands for the guest's function, or for its memory if there is a `box`. */
CUresult wk_host_make(struct wk_call *c, struct wk_holds *holds, uint64_t number, const struct wk_box *box,
		      struct wk_object **host);
CUDA_HOST_NODE_PARAMS wk_host_params(struct wk_object *host);
/* The copy as a graph of its own: a gate and a copy, to be the child of a node. */
CUresult wk_host_pair(struct wk_call *c, struct wk_object *host, const struct wk_box *box, CUgraph *pair);
/* Has a node that is such a pair copy otherwise. */
CUresult wk_host_change(CUgraphNode node, struct wk_object *host, const struct wk_box *box);
/* What it is to the guest: a host function, or the copy that stands in such a child graph; NULL: neither. */
struct wk_object *wk_host_of(CUgraphNode node, CUgraphNodeType type);
/* Not twice in one graph: two of one memory here could run at the same time. */
CUresult wk_host_alone(const struct wk_holds *holds, const struct wk_holds *more);
CUresult wk_host_launch(struct wk_call *c, const struct wk_graph *graph, CUgraphExec exec, CUstream stream);

/* ---- capture.c: streams of the guest that capture. The driver knows which do, and is asked only while any may. */
/*
 * What has no place in a graph, as it would be used again at each launch: an error, and the end of that capture. Another
 * thread may begin one meanwhile, so what a capture has made is checked again when it ends.
 */
CUresult wk_capture_refuse(struct wk_call *c, const struct wk_object *stream);
/* A call that may have made nodes: what it uses is held for the graph. */
CUresult wk_capture_note(struct wk_call *c, struct wk_object *used, uint64_t nodes);
CUresult wk_capture_ask(const struct wk_object *stream, CUstreamCaptureStatus *status, cuuint64_t *number);
/* Whether what is put into the stream is captured. */
CUresult wk_capture_asks(struct wk_call *c, const struct wk_object *stream, bool *captures);
/* The same of a graph that is launched into one of those streams, maybe. */
CUresult wk_capture_note_all(struct wk_call *c, const struct wk_graph *used);
void wk_capture_forget(struct wk_session *session);
/* capture_steer.c: what a captured graph may hold; a node for each, at least; and whether the stream captures no more. */
CUresult wk_capture_check(struct wk_call *c, const struct wk_graph *graph);
CUresult wk_capture_charge(struct wk_graph *graph, uint32_t count);
void wk_capture_over(struct wk_call *c, struct wk_object *stream);
/* A stream that captures, and what its next node depends on: the driver's own list, until the next call on the stream. */
struct wk_tip {
	cuuint64_t capture;
	CUgraph graph;
	const CUgraphNode *nodes;
	size_t count;
};
CUresult wk_capture_tip(struct wk_call *c, uint64_t handle, struct wk_object **stream, struct wk_tip *tip);
/* ---- capture_numbers.c: numbers of nodes that a guest has asked for before their capture ended; the graph keeps them. */
struct wk_numbering {
	struct wk_numbering *next;
	cuuint64_t capture;       /* as the driver numbers them */
	struct wk_object *graph;  /* held; NULL: the guest knows none yet, and the nodes are kept here */
	struct wk_graph own;
};
/* Of a capture; NULL: there is none, or, with `make`, there are too many. */
struct wk_numbering *wk_numbers_of(struct wk_session *session, cuuint64_t capture, bool make);
/* The nodes of the driver's graph that have no number yet get one each. */
CUresult wk_numbers_rest(struct wk_graph *graph, CUgraph driver);
/* One capture's, or all that the session has (0). */
void wk_numbers_drop(struct wk_session *session, cuuint64_t capture);
/* Those whose graph has been taken out with its context, which they would keep. */
void wk_numbers_drop_gone(struct wk_session *session);
/* Gives the nodes of a graph that was captured the numbers that they were told by. */
CUresult wk_numbers_apply(struct wk_session *session, cuuint64_t capture, struct wk_graph *graph);
/* Held while nodes of a capture are listed, and while one ends. */
extern pthread_mutex_t wk_numbers_lock;

/* ---- capture_steer.c: graphs that a stream captures into, used meanwhile */
/* A graph for one call. A capture into it cannot end before wk_graph_unuse(). */
struct wk_use {
	struct wk_object *graph, *stream;
	struct wk_object *outer; /* the stream whose capture has the graph around it; it cannot end either */
	bool locked;
};
CUresult wk_graph_use(struct wk_call *c, uint64_t handle, struct wk_use *use);
void wk_graph_unuse(struct wk_use *use);
/*
 * Under the lock: nothing captures any more, so what captures used is let go. Before that, the guest's graphs that were
 * captured into and whose stream has gone keep what they got, as at any other end.
 */
void wk_capture_none(struct wk_call *c);
/* A context has been taken out, and its streams: nothing of captures keeps it. */
void wk_capture_gone(struct wk_call *c);
#define WK_USED __attribute__((cleanup(wk_graph_unuse)))
/* As wk_hold(), for what needs all of a graph: none that is captured into. */
CUresult wk_graph_hold(struct wk_call *c, uint64_t handle, struct wk_object **graph);

/* ---- image.c, gate.c */
bool wk_image_is_whole(const void *image, size_t length);
void wk_uploads_drop(struct wk_session *session);
/* A host node of a graph is to run: waits until the guest has done what it stands for. */
void wk_host_reached(void *host);
void wk_gates_close(struct wk_session *session);
void wk_gates_free(struct wk_session *session);

#endif
