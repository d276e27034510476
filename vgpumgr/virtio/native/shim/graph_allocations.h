/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is allocated and freed in a stream that captures: nodes of a graph. */
#ifndef VGPUMGR_SHIM_GRAPH_ALLOCATIONS_H
#define VGPUMGR_SHIM_GRAPH_ALLOCATIONS_H

#include "shim.h"

CUresult shim_capture_allocation(CUstream stream, uint64_t id, uint64_t context, CUdevice device, size_t bytes, CUdeviceptr *out);
/* *captured: always. */
CUresult shim_capture_free(CUstream stream, uint64_t id, uint64_t context, CUdeviceptr address, bool *captured);

#endif
