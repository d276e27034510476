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

/* Over what is shared, and the driver's calls for it: who asks twice gets one token, who opens twice one address. */
void wk_ipc_lock(void);
void wk_ipc_unlock(int *unused);
#define IPC_LOCKED() __attribute__((cleanup(wk_ipc_unlock))) int locked_ = (wk_ipc_lock(), 0); (void)locked_

/* Tells the server; there is nothing to be done about a refusal. */
void wk_ipc_tell(enum vg_export_what what, uint64_t id);

#endif
