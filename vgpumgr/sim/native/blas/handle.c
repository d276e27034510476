/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, and the names of statuses. */
#include <pthread.h>
#include <stdlib.h>

#include "blas.h"

/* What the library takes for itself on the device, with the first work of a handle that was given no workspace. */
enum { OWN_WORKSPACE = 4 << 20 };

bool bl_handle_valid(const void *handle)
{
	const struct bl_handle *h = handle;

	return h && h->magic == BL_HANDLE_MAGIC && h->live;
}

struct bl_handle *bl_handle_create(int *status)
{
	struct bl_handle *h;
	struct bl_context *context;

	*status = bl_context_current(&context);
	if (*status != BL_SUCCESS)
		return NULL;
	h = calloc(1, sizeof *h);
	if (!h) {
		*status = BL_ALLOC_FAILED;
		return NULL;
	}
	h->magic = BL_HANDLE_MAGIC;
	h->live = 1;
	h->context = context;
	return h;
}

int bl_handle_destroy(struct bl_handle *handle)
{
	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (handle->own_workspace) {
		bl_driver.cuCtxSynchronize();
		bl_driver.cuMemFree_v2(handle->own_workspace);
	}
	handle->live = 0;
	free(handle);
	return BL_SUCCESS;
}

static bool is_capturing(CUstream stream)
{
	CUstreamCaptureStatus capture;

	return bl_driver.cuStreamGetCaptureInfo_v2(stream, &capture, NULL, NULL, NULL, NULL) != CUDA_SUCCESS ||
	       capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

int bl_handle_enter(struct bl_handle *handle)
{
	int status = bl_context_current(&handle->context);

	/* memory cannot be taken while a stream is captured; the graph does without */
	if (status != BL_SUCCESS || handle->own_workspace || handle->workspace || is_capturing(handle->stream))
		return status;
	return bl_driver.cuMemAlloc_v2(&handle->own_workspace, OWN_WORKSPACE) == CUDA_SUCCESS ? BL_SUCCESS : BL_ALLOC_FAILED;
}

static const struct {
	int status;
	const char *name, *text;
} statuses[] = {
	{ BL_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success" },
	{ BL_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized" },
	{ BL_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed" },
	{ BL_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an invalid value was used as an argument" },
	{ BL_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "an absent device architectural feature is required" },
	{ BL_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed" },
	{ BL_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute" },
	{ BL_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed" },
	{ BL_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported" },
	{ BL_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "an error was detected when checking the current licensing" },
};

const char *bl_status_name(int status)
{
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "CUBLAS_STATUS_UNKNOWN";
}

const char *bl_status_text(int status)
{
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (statuses[i].status == status)
			return statuses[i].text;
	return "<unknown>";
}
