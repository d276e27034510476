/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and events that several processes use. A handle says how to reach the process that has made it, and what is meant
 * there. That process answers with the file that the memory lies in. Who opens sends one end of a pipe along and keeps the
 * other: so each of the two sees when the other closes what is shared, or ends.
 */
#ifndef VGPUMGR_SIM_IPC_H
#define VGPUMGR_SIM_IPC_H

#include "cuda_sim.h"

enum ipc_kind { IPC_MEMORY = 1, IPC_EVENT, IPC_PHYSICAL, IPC_POOL, IPC_POOLED, IPC_KINDS };
enum { IPC_NAME = 16, IPC_KEY = 16 };

/* What CUipcMemHandle and CUipcEventHandle hold, CUmemPoolPtrExportData, and descriptors of physical memory and of pools. */
struct ipc_handle {
	uint32_t kind;
	char name[IPC_NAME];   /* of the socket, in the abstract namespace */
	uint8_t key[IPC_KEY];  /* of the process: names are used again */
	uint64_t id, of;       /* of: of memory of a pool the pool's */
	uint8_t zero[8];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "a handle of memory");
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcEventHandle), "a handle of an event");
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUmemPoolPtrExportData), "memory of a pool");

/* What the other process says. */
struct ipc_offer {
	int32_t result;        /* a CUresult */
	uint32_t gpu;
	int32_t gi_id, ci_id;
	uint64_t file_offset, bytes; /* of the pieces of memory that the allocation lies in, */
	uint64_t inside, size;       /* and where it lies in them */
	uint64_t who;                /* whom the lender takes the other one for */
	uint64_t request;            /* the answer to that one */
};

/* ipc_peer.c */
/* What this process lends, for one opening of another: the file, and what take_back() gets. NULL: it is not there any more. */
struct ipc_lender {
	void *(*lend)(uint64_t id, struct ipc_offer *offer, int *file);
	void (*take_back)(void *lent, uint64_t who);
};
/* With the lenders of all kinds. Later, a process may not be allowed to make sockets. Where it cannot, there is no sharing. */
void ipc_start(const struct ipc_lender *lenders[]);
/* A handle of what has this id; CUDA_ERROR_NOT_SUPPORTED where this process cannot be asked. */
CUresult ipc_make(enum ipc_kind kind, uint64_t id, struct ipc_handle *out);
/* Whether this process has made it. */
bool ipc_is_own(const struct ipc_handle *handle);
/* Asks for it. The file, which a pool has none of, and this process's end of the pipe are the caller's to close. */
CUresult ipc_ask(const struct ipc_handle *handle, struct ipc_offer *offer, int *file, int *line);
/* Whether the process at the other end of the pipe has gone. */
bool ipc_has_gone(int line);

/* At cuInit. ipc_opened.c: what a context has opened goes with it. With drv.lock held. */
void ipc_init(void);
void ipc_free_context(const struct context *ctx);

/* event.c: the id by which others may have an event that is made for it; an event that another process has made. */
struct shared_event;
CUresult event_shared(CUevent handle, uint64_t *id);
CUresult event_open(struct context *ctx, struct shared_event *shared, CUevent *out);

/* vm.c: the allocation with this id, of a pool or not, is lent, until vm_take_back() gets what came out. NULL: there is none. */
struct chunk *vm_lend(uint64_t id, bool pooled, struct ipc_offer *offer, int *file);
void vm_take_back(struct chunk *lent);
/* Whether cuIpcGetMemHandle takes it. */
static inline bool vm_is_lendable(const struct allocation *a)
{
	return a->kind == ALLOCATION_DEVICE && !a->of_module && !a->managed && !a->pool && !a->borrowed;
}
/* Enters what another process lends into a context. `line` goes with it, also where that fails. */
CUresult vm_borrow(struct context *ctx, const struct ipc_offer *offer, int file, int line, uint64_t *addr);

/* ipc_api.c: memory of a handle in a context: the same one has one address there, as often as it is opened. */
CUresult ipc_open_memory(struct context *ctx, const struct ipc_handle *handle, CUdeviceptr *out, bool *first);
/* ipc_opened.c: what has been opened, with drv.lock held: one that is to be added, or freed; whether it was opened before, and where. */
struct ipc_opened *ipc_opened_new(void);
void ipc_opened_add(struct ipc_opened *o, const struct ipc_handle *handle, const struct context *ctx, uint64_t addr);
bool ipc_opened_again(const struct ipc_handle *handle, const struct context *ctx, CUdeviceptr *out);
/* One opening less; false: there is no such memory. `last`: it is the caller's to remove. */
bool ipc_close_memory(const struct context *ctx, uint64_t addr, enum ipc_kind kind, bool *last);

/* virtual.c and pool.c: what this process lends, by its id; NULL: it is gone. All with drv.lock held, as what follows. */
struct physical *physical_lend(uint64_t id, struct ipc_offer *offer, int *file);
void physical_take_back(struct physical *p);
struct pool *pool_lend(uint64_t id, struct ipc_offer *offer);
void pool_take_back(struct pool *p);
/* What may be exported, and its id; another process's, which `line` leads to; a further handle of what this process has made. */
CUresult physical_export(CUmemGenericAllocationHandle handle, uint64_t *id);
CUresult physical_import(struct device *dev, const struct ipc_offer *offer, int file, int line, CUmemGenericAllocationHandle *out);
CUresult physical_again(uint64_t id, CUmemGenericAllocationHandle *out);
CUresult pool_export(CUmemoryPool handle, uint64_t *id);
CUresult pool_import(struct device *dev, const struct ipc_handle *origin, int line, CUmemoryPool *out);
/* Of an allocation: the id of its pool, if that has been exported; else 0. */
uint64_t pool_exportable(const struct pool *p);
/* Where an imported pool comes from; NULL: it is this process's, or none. */
const struct ipc_handle *pool_origin(CUmemoryPool handle, struct device **dev);
/* Memory that was imported from it, when that is opened first. */
void pool_borrowed(CUmemoryPool handle, uint64_t addr);

/* ipc_event.c: what all processes know of an event. References are with drv.lock held. */
struct shared_event *shared_event_new(void);
struct shared_event *shared_event_of(int file, int line, uint64_t who);
void shared_event_unref(struct shared_event *s);
struct shared_event *shared_event_ref(struct shared_event *s);
uint64_t shared_event_id(const struct shared_event *s);
/* A record begins, and is reached. */
uint64_t shared_event_begin(struct shared_event *s);
void shared_event_reach(struct shared_event *s, uint64_t record);
/* One of those that have it has gone: what it has begun to record last will not be reached. */
void shared_event_gone(struct shared_event *s, uint64_t who);
/* The last record; whether one was reached, or will never be, because its process has gone. */
uint64_t shared_event_last(const struct shared_event *s);
bool shared_event_reached(const struct shared_event *s, uint64_t record);
void shared_event_wait(const struct shared_event *s, uint64_t record);
/* With drv.lock held: what is lent by this id, with a reference for the borrower; NULL: it is gone. */
struct shared_event *shared_event_lend(uint64_t id, int *file);

#endif
