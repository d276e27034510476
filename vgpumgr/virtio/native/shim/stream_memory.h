/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for values in memory, writes of values and reductions, of streams and of graphs. */
#ifndef VGPUMGR_SHIM_STREAM_MEMORY_H
#define VGPUMGR_SHIM_STREAM_MEMORY_H

#include <memory_wire.h>

#include "shim.h"

/* Checks them, and packs them into `words`, which `packed` names then. */
CUresult shim_pack_memory_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags, bool old,
				     uint64_t words[CUDA_MEMORY_OPERATIONS][VG_MEMORY_WORDS], struct vg_bytes *packed);

#endif
