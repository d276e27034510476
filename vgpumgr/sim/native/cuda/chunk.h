/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of device memory: chunk.c. All with the table's lock held, which vm.c has. */
#ifndef VGPUMGR_SIM_CHUNK_H
#define VGPUMGR_SIM_CHUNK_H

#include "ipc.h"

/* Memory for an allocation, whose size it has; and back. */
CUresult chunk_take(struct context *ctx, struct allocation *a);
void chunk_give_back(const struct allocation *a);
/* Takes it off its context. What is lent stays until it comes back. */
void chunk_drop(struct chunk *c);
void chunk_take_back(struct chunk *c);
/* Addresses for what another process lends; its pages are the lender's, who is charged for them. */
CUresult chunk_borrow(struct chunk *c, const struct ipc_offer *offer, int file);

#endif
