/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies, the mbarriers that they arrive at, and hints for caches. */
#ifndef PTX_ASYNC_H
#define PTX_ASYNC_H

#include "ops.h"

/* So many bytes have come that an mbarrier awaits. False after a fault. */
bool mbarrier_complete(struct thread *t, const struct insn *i, uint64_t addr, uint32_t bytes);
bool decode_arrive_copies(struct body *b, struct statement *s);
/* st and red without .async; and what tells the mbarrier of operand n that bytes have come. */
bool decode_store(struct body *b, struct statement *s);
bool decode_reduction(struct body *b, struct statement *s);
bool decode_complete(struct body *b, struct statement *s, uint32_t n, uint32_t bytes);

/* Cache operators, eviction priorities, prefetch sizes and the memory model's qualifiers, which change no result here. */
void take_hints(struct statement *s);
/* Takes .L2::cache_hint and the policy, which is then the last operand. */
void take_policy(struct body *b, struct statement *s);

#endif
