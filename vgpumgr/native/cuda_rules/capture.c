/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and the capture of streams. */
#include "cuda_rules.h"

#include <string.h>

CUresult cuda_check_capture_mode(CUstreamCaptureMode mode)
{
	return (unsigned int)mode <= CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool cuda_capture_forbids(CUstreamCaptureMode thread, CUstreamCaptureMode capture, bool by_itself)
{
	if (thread == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (by_itself)
		return capture != CU_STREAM_CAPTURE_MODE_RELAXED;
	return thread == CU_STREAM_CAPTURE_MODE_GLOBAL && capture == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult cuda_check_edges(const CUgraphEdgeData *data, size_t count)
{
	static const CUgraphEdgeData plain;

	for (size_t i = 0; data && i < count; i++) {
		if (memcmp(&data[i], &plain, sizeof(plain)))
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}
