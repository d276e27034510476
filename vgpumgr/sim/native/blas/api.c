/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLAS that concern a handle. */
#include <stdio.h>

#include "api.h"

static const int defaults_end = 3; /* cublasMath_t: DEFAULT, TENSOR_OP, PEDANTIC, TF32_TENSOR_OP */
enum { MATH_DISALLOW_REDUCED = 16, WORKSPACE_ALIGNMENT = 256 };

int cublasCreate_v2(void **handle)
{
	int status;

	if (!handle)
		return BL_INVALID_VALUE;
	*handle = bl_handle_create(&status);
	return status;
}

int cublasDestroy_v2(void *handle)
{
	return bl_handle_destroy(handle);
}

int cublasGetVersion_v2(void *handle, int *version)
{
	if (!bl_handle_valid(handle))
		return BL_NOT_INITIALIZED;
	if (!version)
		return BL_INVALID_VALUE;
	*version = bl_version();
	return BL_SUCCESS;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
int cublasGetProperty(int type, int *value)
{
	int version = bl_version();

	if (!value || type < 0 || type > 2)
		return BL_INVALID_VALUE;
	*value = type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100;
	return BL_SUCCESS;
}

size_t cublasGetCudartVersion(void)
{
	return (size_t)(bl_version() / 10000 * 1000);
}

const char *cublasGetStatusName(int status)
{
	return bl_status_name(status);
}

const char *cublasGetStatusString(int status)
{
	return bl_status_text(status);
}

int cublasSetStream_v2(void *handle, void *stream)
{
	struct bl_handle *h = handle;

	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	h->stream = stream;
	h->workspace = NULL;
	h->workspace_bytes = 0;
	return BL_SUCCESS;
}

int cublasGetStream_v2(void *handle, void **stream)
{
	struct bl_handle *h = handle;

	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	if (!stream)
		return BL_INVALID_VALUE;
	*stream = h->stream;
	return BL_SUCCESS;
}

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes)
{
	struct bl_handle *h = handle;

	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT)
		return BL_INVALID_VALUE;
	h->workspace = workspace;
	h->workspace_bytes = bytes;
	return BL_SUCCESS;
}

/* A setting of a handle that lies between two values. */
static int set(struct bl_handle *h, int *place, int value, bool good)
{
	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	if (!good)
		return BL_INVALID_VALUE;
	*place = value;
	return BL_SUCCESS;
}

static int get(const struct bl_handle *h, const int *place, int *value)
{
	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	if (!value)
		return BL_INVALID_VALUE;
	*value = *place;
	return BL_SUCCESS;
}

#define PLACE(handle, member) (&((struct bl_handle *)(handle))->member)

int cublasSetPointerMode_v2(void *handle, int mode)
{
	return set(handle, PLACE(handle, pointer_mode), mode, mode == BL_POINTER_HOST || mode == BL_POINTER_DEVICE);
}

int cublasGetPointerMode_v2(void *handle, int *mode)
{
	return get(handle, PLACE(handle, pointer_mode), mode);
}

int cublasSetAtomicsMode(void *handle, int mode)
{
	return set(handle, PLACE(handle, atomics_mode), mode, mode == 0 || mode == 1);
}

int cublasGetAtomicsMode(void *handle, int *mode)
{
	return get(handle, PLACE(handle, atomics_mode), mode);
}

int cublasSetMathMode(void *handle, int mode)
{
	int plain = mode & ~MATH_DISALLOW_REDUCED;

	return set(handle, PLACE(handle, math_mode), mode, plain >= 0 && plain <= defaults_end + 2);
}

int cublasGetMathMode(void *handle, int *mode)
{
	return get(handle, PLACE(handle, math_mode), mode);
}

int cublasSetSmCountTarget(void *handle, int count)
{
	return set(handle, PLACE(handle, sm_count_target), count, count >= 0);
}

int cublasGetSmCountTarget(void *handle, int *count)
{
	return get(handle, PLACE(handle, sm_count_target), count);
}

static void (*logger)(const char *);

int cublasLoggerConfigure(int on, int to_stdout, int to_stderr, const char *file)
{
	(void)on;
	(void)to_stdout;
	(void)to_stderr;
	(void)file;
	return BL_SUCCESS;
}

int cublasSetLoggerCallback(void (*callback)(const char *))
{
	logger = callback;
	return BL_SUCCESS;
}

int cublasGetLoggerCallback(void (**callback)(const char *))
{
	if (!callback)
		return BL_INVALID_VALUE;
	*callback = logger;
	return BL_SUCCESS;
}

void cublasXerbla(const char *name, int argument)
{
	fprintf(stderr, "** On entry to %s, parameter number %d had an illegal value\n", name, argument);
}
