/* SPDX-License-Identifier: Apache-2.0 */
/* What an object has that other processes of the guest have, too. */
#ifndef VGPUMGR_WORKER_IPC_H
#define VGPUMGR_WORKER_IPC_H

#include "transport/worker_exports.h"
#include "worker.h"
#include "vg_worker.h"

struct wk_shared {
	uint64_t id;             /* the server's; 0: others can open it no more */
	_Atomic uint64_t opens;  /* of what is another process's; else 0. Of pools and of physical memory 1 */
	uint8_t token[VG_EXPORT_BYTES];
};

/*
 * Two locks: over what this process lets others have, so that two calls get one token, and over what it has opened, so that
 * two calls get one address. A driver that waits to open or close something holds up nothing that is made or freed.
 */
enum wk_ipc_side { WK_IPC_MADE, WK_IPC_OPENED };
void wk_ipc_lock(enum wk_ipc_side side);
void wk_ipc_unlock(const enum wk_ipc_side *side);
#define IPC_LOCKED(side) __attribute__((cleanup(wk_ipc_unlock))) const enum wk_ipc_side locked_ = (wk_ipc_lock(side), side)

/* ops_ipc.c: a token for what this process has, with the lock; `of`: of memory of a pool that one's id. */
CUresult wk_ipc_export(struct wk_object *o, enum vg_export_kind kind, uint64_t of, size_t *length, uint8_t *token);
/* What a token stands for, with its descriptor where the kind has one, for the caller to close. */
CUresult wk_ipc_ask(enum vg_export_kind kind, uint64_t of, const struct vg_bytes *token, struct vg_export_answer *answer, int *file);
/* The object that the driver's one is for, of this owner; NULL: out of memory. */
struct wk_object *wk_ipc_new(struct wk_object *owner, enum wk_kind kind, void *driver, const struct vg_export_answer *answer,
			     const struct vg_bytes *token);
bool wk_ipc_is_of_token(const struct wk_object *o, const void *token);

/* Tells the server; there is nothing to be done about a refusal. */
void wk_ipc_tell(enum vg_export_what what, uint64_t id);

#endif
