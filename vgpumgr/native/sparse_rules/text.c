/* SPDX-License-Identifier: Apache-2.0 */
/* What statuses are called. */
#include "descriptors.h"

static const struct {
	const char *name, *text;
} known[] = {
	{ "CUSPARSE_STATUS_SUCCESS", "success" },
	{ "CUSPARSE_STATUS_NOT_INITIALIZED", "initialization error" },
	{ "CUSPARSE_STATUS_ALLOC_FAILED", "out of memory" },
	{ "CUSPARSE_STATUS_INVALID_VALUE", "invalid value" },
	{ "CUSPARSE_STATUS_ARCH_MISMATCH", "architecture mismatch" },
	{ "CUSPARSE_STATUS_MAPPING_ERROR", "texture mapping error" },
	{ "CUSPARSE_STATUS_EXECUTION_FAILED", "kernel launch failure" },
	{ "CUSPARSE_STATUS_INTERNAL_ERROR", "internal error" },
	{ "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", "matrix type not supported" },
	{ "CUSPARSE_STATUS_ZERO_PIVOT", "zero pivot" },
	{ "CUSPARSE_STATUS_NOT_SUPPORTED", "operation not supported" },
	{ "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "insufficient resources" },
};

enum { KNOWN = sizeof(known) / sizeof(known[0]) };

SPARSE_FUNCTION(const char *, cusparseGetErrorName, int status)
{
	return status >= 0 && status < KNOWN ? known[status].name : "CUSPARSE_STATUS_<unknown>";
}

SPARSE_FUNCTION(const char *, cusparseGetErrorString, int status)
{
	return status >= 0 && status < KNOWN ? known[status].text : "unknown error";
}
