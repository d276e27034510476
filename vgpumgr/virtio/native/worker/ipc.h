/* SPDX-License-Identifier: Apache-2.0 */
/* What an object has that other processes of the guest have, too. */
#ifndef VGPUMGR_WORKER_IPC_H
#define VGPUMGR_WORKER_IPC_H

#include "transport/worker_exports.h"
#include "worker.h"

struct wk_shared {
	uint64_t id;             /* the server's; 0: others can open it no more */
	_Atomic uint64_t opens;  /* of what is another process's; else 0 */
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

/* Tells the server; there is nothing to be done about a refusal. */
void wk_ipc_tell(enum vg_export_what what, uint64_t id);

#endif
