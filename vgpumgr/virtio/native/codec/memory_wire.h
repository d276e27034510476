/* SPDX-License-Identifier: Apache-2.0 */
/* How operations of stream_memory travel (docs/wire-format.md, "Waits for memory"): four words for each. */
#ifndef VG_MEMORY_WIRE_H
#define VG_MEMORY_WIRE_H

#include <cuda_rules.h>

enum { VG_MEMORY_WORDS = 4 };

static inline void vg_pack_memory_operation(const struct cuda_memory_operation *m, uint64_t word[VG_MEMORY_WORDS])
{
	word[0] = m->kind | (uint64_t)m->flags << 32;
	word[1] = m->reduction | (uint64_t)m->bytes << 32;
	word[2] = m->address;
	word[3] = m->value;
}

/* Whatever it says: the rules decide whether there is such an operation. */
static inline void vg_unpack_memory_operation(const uint64_t word[VG_MEMORY_WORDS], CUstreamBatchMemOpParams *p)
{
	struct cuda_memory_operation m = {
		.kind = (CUstreamBatchMemOpType)(uint32_t)word[0],
		.flags = word[0] >> 32,
		.reduction = (CUstreamAtomicReductionOpType)(uint32_t)word[1],
		.bytes = word[1] >> 32,
		.address = word[2],
		.value = word[3],
	};

	cuda_write_memory_operation(&m, p);
}

#endif
