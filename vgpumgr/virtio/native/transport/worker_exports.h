/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes of one guest share with each other (docs/adr/0023-tokens.md). A driver's handle stays on the host: the guest gets
 * a token, random bytes that the server has drawn, and only the server knows which handle it stands for, whose it is and who
 * may use it. Sessions ask it over a socket of their own, one request at a time.
 */
#ifndef VG_WORKER_EXPORTS_H
#define VG_WORKER_EXPORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker.h"
#include "worker_exports_passing.h"

enum vg_export_what {
	VG_EXPORT_MAKE = 1,      /* kind, bytes, handle, of memory of a pool the pool's id: the answer has token and id */
	VG_EXPORT_WITHDRAW,      /* id: it is opened no more. Who has it keeps it, and the VM pays for it */
	VG_EXPORT_OPEN,          /* kind, token, of memory of a pool the pool's id: the answer has handle, bytes and id */
	VG_EXPORT_CLOSE,         /* id: as often as it was opened */
};
enum vg_export_kind {
	VG_EXPORT_MEMORY = 1,
	VG_EXPORT_EVENT,
	VG_EXPORT_PHYSICAL,      /* memory of cuMemCreate */
	VG_EXPORT_POOL,
	VG_EXPORT_POOLED,        /* memory of a pool: opened in that pool only */
	VG_EXPORT_KINDS,
};
/* Whether the driver's handle is a descriptor, which goes along with the request that makes it and with what opens it. */
static inline bool vg_export_is_file(uint32_t kind)
{
	return kind == VG_EXPORT_PHYSICAL || kind == VG_EXPORT_POOL;
}

enum {
	VG_EXPORT_BYTES = 64,    /* of a token, and of a driver's handle */
	VG_EXPORTS = 4096,       /* of one VM */
	VG_EXPORTS_OF_ONE = 3072, /* of one process, and of one user where users are kept apart */
	VG_EXPORT_OPENS = 4096,  /* of one, by one process */
};

struct vg_export_request {
	uint32_t what, kind;
	uint64_t id, bytes;
	uint8_t token[VG_EXPORT_BYTES], handle[VG_EXPORT_BYTES];
};

struct vg_export_answer {
	int32_t error;           /* 0 or a negative errno */
	uint32_t zero;
	uint64_t id, bytes;
	uint8_t token[VG_EXPORT_BYTES], handle[VG_EXPORT_BYTES];
};

/* A session: asks the server. 0; its refusal (-ENOENT: no such token for this process, -EDEADLK: it is its own, -ENOSPC: there are
 * too many, -EPERM: the agent does not say whose processes are); or -ENOTCONN. */
void vg_exports_use(int socket);
int vg_exports_ask(const struct vg_export_request *request, struct vg_export_answer *answer);
/* `file` goes along, or (-1) nothing; then it is what has come with the answer, for the caller to close. */
int vg_exports_ask_with(const struct vg_export_request *request, struct vg_export_answer *answer, int *file);

/* The server: reads what a lane's session asks, and answers. */
void vg_exports_read(struct vg_server *server, struct vg_entry *entry);
/* The lane's session has ended: so have its tokens. */
void vg_exports_end(struct vg_server *server, uint32_t lane);
/* The same of one that does not end, whose charges are in that row: it is taken to keep all that it has opened. */
void vg_exports_strand(struct vg_server *server, uint32_t lane, uint32_t row);
/* Bytes of others' memory that sessions have open, counted for each of them. */
uint64_t vg_exports_opened(const struct vg_server *server);

#endif
