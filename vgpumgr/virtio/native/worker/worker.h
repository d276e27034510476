/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's process executes what one guest process asks, on a driver that it loads. Everything from a guest is hostile:
 * payloads are decoded from private copies, handles resolved in typed tables, addresses checked against a ledger. What
 * breaks the process all the same ends that session only; the worker's other process, which starts it, runs none of this.
 *
 * Objects (and device allocations) are counted: a table or the ledger holds one reference, each running call its own,
 * each object one on its owner (a function's is its module, a module's its context; pools and contexts have none), and the driver's object ends with the
 * last one. So a function keeps its module loaded, and a call that waits on one thread is safe from a destroy on another.
 *
 * Locks. A session's lock guards its tables, its ledger, who owns what in them, and its queues. What is taken out of a
 * table is taken out in one go with all that it owns, and nothing is put below an owner that is out: so nobody finds half
 * of a context. The driver is never called under the lock; references are given back without it, because the last one
 * calls the driver. Only lane locks are taken under it. tests/sanitize runs all of this under the thread sanitizer.
 *
 * Threads. The lane's reader executes calls, those marked as blocking excepted, which helpers do. While a host function of
 * the guest is outstanding, any call of the driver may wait for it: then the reader only reads, and one thread of the
 * session executes calls in their order (see order.c).
 */
#ifndef VGPUMGR_WORKER_H
#define VGPUMGR_WORKER_H

#include <cuda.h>
#include <pthread.h>
#include <transport.h>

#include "vg_driver.h"
#include "vg_ops.h"

enum wk_kind { WK_CONTEXT, WK_STREAM, WK_EVENT, WK_MODULE, WK_FUNCTION, WK_POOL, WK_TABLES, WK_MEMORY = WK_TABLES };

enum {
	WK_QUIET = 1,
	WK_IN_CONTEXT = 2,
	WK_BLOCKING = 4,
	WK_RUN_AFTER_ERROR = 8,
	WK_BULK_IN = 16,
	WK_BULK_OUT = 32,
};

enum {
	WK_TABLE_AHEAD = 4096,    /* slots that a new handle may be beyond the table's end */
	WK_PARAMETERS = 1024,
	WK_PARAMETERS_BYTES = 32764, /* CUDA's own limit */
	WK_UPLOADS = 16,
	WK_ALLOCATIONS = 1 << 20,
	WK_HELPERS = 64,          /* threads that wait for one guest process */
	WK_JOBS = 4096,
	WK_QUEUE_BYTES = 64 << 20, /* of calls behind a host function; then the reader waits */
	WK_GATES = 4096,          /* host functions that wait in streams */
};

#define WK_IMAGES_BYTES (1ull << 30) /* module images being received, of one guest process */

struct wk_parameter {
	uint32_t offset, size;
};

struct wk_object {
	enum wk_kind kind;
	_Atomic uint32_t references;  /* taken under the session's lock or from one that is held; given back anywhere */
	struct wk_object *owner;      /* held: of a function or a variable its module, else the context; NULL for a context */
	struct wk_object *context;    /* the owner, or its owner; the object itself for a context */
	void *driver;                 /* CUcontext, CUstream, ... */
	uint64_t number;              /* of a context: never used again, unlike its address */
	uint64_t address;             /* of memory */
	uint64_t bytes;               /* of device memory that it takes: see wk_charge() */
	_Atomic uint64_t threshold;   /* of a pool, as the guest has set it: see ops_pool.c */
	/* under the session's lock */
	struct wk_object *owned, *next, **link; /* what is owned and in a table; the neighbours below the same owner */
	uint32_t slot;
	bool lent;                    /* a pool that is the driver's own: not destroyed */
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
	size_t bulk_filled;
	bool answered;                /* or will be, by another thread */
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

/* ---- ledger.c */
/* What is remembered is destroyed with its owner, a context or a module, or by wk_ledger_take() and wk_release(). */
CUresult wk_ledger_add(struct wk_call *c, struct wk_object *owner, uint64_t address, uint64_t bytes);
CUresult wk_ledger_take(struct wk_call *c, uint64_t address, struct wk_object **memory);
/* rows x (count * factor) bytes, pitch apart, lie in one allocation of the call's context, which stays for the call. */
CUresult wk_check_range(struct wk_call *c, uint64_t address, uint64_t count, uint64_t factor, uint64_t rows,
			uint64_t pitch);
/* Under the lock: drops what is out, in one pass. */
void wk_ledger_sweep(struct wk_session *session);

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

/* ---- image.c, gate.c */
bool wk_image_is_whole(const void *image, size_t length);
void wk_uploads_drop(struct wk_session *session);
void wk_gates_close(struct wk_session *session);
void wk_gates_free(struct wk_session *session);

#endif
