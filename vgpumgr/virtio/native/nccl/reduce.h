/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions on the processor: always in the order of the ranks, so that the same values give the same bits each time. */
#ifndef VG_NCCL_REDUCE_H
#define VG_NCCL_REDUCE_H

#include "api.h"

/* How the values of a collective are reduced: by an operation, or as a sum of products with each rank's own scalar. */
struct reduction {
	ncclDataType_t type;
	ncclRedOp_t op;
	int ranks;
	const uint64_t *scalars; /* of each rank, in the type's bits; NULL: none */
};

/* Of an element; 0 for a type that there is not. */
size_t type_bytes(ncclDataType_t type);
/* from[rank]: as many elements each. to may be one of them. */
void reduce(const struct reduction *how, void *to, const void *const *from, size_t count);

#endif
