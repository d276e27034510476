/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_memory.h"

#include <stdlib.h>
#include <string.h>

bool memory_own(struct graph_memory *m)
{
	CUstreamBatchMemOpParams *list = calloc(m->count, sizeof(*list));

	if (list)
		memcpy(list, m->list, m->count * sizeof(*list));
	m->list = list;
	return list;
}

bool memory_may_become(const struct graph_memory *have, const struct graph_memory *want)
{
	struct cuda_memory_operation a, b;
	bool may = have->count == want->count && have->context == want->context;

	for (unsigned int i = 0; may && i < have->count; i++) {
		cuda_read_memory_operation(&have->list[i], false, &a);
		cuda_read_memory_operation(&want->list[i], false, &b);
		may = a.kind == b.kind && a.bytes == b.bytes;
		if (a.kind == CU_STREAM_MEM_OP_BARRIER)
			may = may && a.flags == b.flags;
		else if (a.kind == CU_STREAM_MEM_OP_ATOMIC_REDUCTION)
			may = may && a.reduction == b.reduction && a.address == b.address && a.value == b.value;
	}
	return may;
}
