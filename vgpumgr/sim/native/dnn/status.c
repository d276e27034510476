/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses by name, and the reason for the thread's last failure. */
#include <stdio.h>

#include "dnn.h"

static _Thread_local char reason[128];

int dn_fail(int status, const char *why)
{
	snprintf(reason, sizeof reason, "%s", why);
	return status;
}

const char *dn_last_error(void)
{
	return reason;
}

int dn_status(int blas_status)
{
	switch (blas_status) {
	case BL_SUCCESS:
		return DN_SUCCESS;
	case BL_NOT_INITIALIZED:
		return dn_fail(DN_NOT_INITIALIZED, "there is no CUDA driver or context");
	case BL_ALLOC_FAILED:
		return dn_fail(DN_NO_HOST_MEMORY, "no memory");
	case BL_EXECUTION_FAILED:
		return dn_fail(DN_EXECUTION_FAILED, "the driver refused the work");
	default:
		return dn_fail(DN_INTERNAL, "internal error");
	}
}

static const struct {
	int status;
	const char *name;
} names[] = {
	{ DN_SUCCESS, "CUDNN_STATUS_SUCCESS" },
	{ DN_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED" },
	{ DN_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM" },
	{ DN_NULL_POINTER, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER" },
	{ DN_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED" },
	{ DN_OUT_OF_BOUND, "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND" },
	{ DN_SIZE_INSUFFICIENT, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT" },
	{ DN_SHAPE_MISMATCH, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH" },
	{ DN_DUPLICATED, "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES" },
	{ DN_ATTRIBUTE_TYPE, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE" },
	{ DN_DESCRIPTOR_TYPE, "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE" },
	{ DN_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED" },
	{ DN_BAD_PATTERN, "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN" },
	{ DN_BAD_SHAPE, "CUDNN_STATUS_NOT_SUPPORTED_SHAPE" },
	{ DN_BAD_DATA_TYPE, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE" },
	{ DN_BAD_LAYOUT, "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT" },
	{ DN_INTERNAL, "CUDNN_STATUS_INTERNAL_ERROR" },
	{ DN_NO_HOST_MEMORY, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED" },
	{ DN_NO_DEVICE_MEMORY, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED" },
	{ DN_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED" },
};

const char *dn_status_name(int status)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].status == status)
			return names[i].name;
	return "CUDNN_UNKNOWN_STATUS";
}
