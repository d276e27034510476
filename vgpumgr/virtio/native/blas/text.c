/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the libraries beside calculating: names of errors, versions, logging. */
#include <stdio.h>

#include "blas.h"

static const struct {
	int status;
	const char *name, *text;
} statuses[] = {
	{ BLAS_OK, "CUBLAS_STATUS_SUCCESS", "success" },
	{ BLAS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized" },
	{ BLAS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed" },
	{ BLAS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function" },
	{ BLAS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "the device lacks a feature that the function needs" },
	{ BLAS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed" },
	{ BLAS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute" },
	{ BLAS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed" },
	{ BLAS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported" },
	{ BLAS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the functionality requested needs a license" },
};

enum { STATUSES = sizeof(statuses) / sizeof(statuses[0]) };

static const char *name_of(int status)
{
	for (int i = 0; i < STATUSES; i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "unrecognized error code";
}

static const char *text_of(int status)
{
	for (int i = 0; i < STATUSES; i++)
		if (statuses[i].status == status)
			return statuses[i].text;
	return "unrecognized error code";
}

static int property(uint32_t library, int type, int *value)
{
	uint64_t version = math_version(library);

	if (!value || type < 0 || type > 2)
		return BLAS_INVALID_VALUE;
	if (!version)
		return BLAS_NOT_INITIALIZED;
	*value = (int)(type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100);
	return BLAS_OK;
}

#define TEXTS(prefix, library)                                              \
	BLAS_API const char *prefix##GetStatusName(int status);             \
	const char *prefix##GetStatusName(int status)                       \
	{                                                                   \
		return name_of(status);                                     \
	}                                                                   \
	BLAS_API const char *prefix##GetStatusString(int status);           \
	const char *prefix##GetStatusString(int status)                     \
	{                                                                   \
		return text_of(status);                                     \
	}                                                                   \
	BLAS_API int prefix##GetProperty(int type, int *value);             \
	int prefix##GetProperty(int type, int *value)                       \
	{                                                                   \
		return property(library, type, value);                      \
	}                                                                   \
	BLAS_API size_t prefix##GetCudartVersion(void);                     \
	size_t prefix##GetCudartVersion(void)                               \
	{                                                                   \
		return VGPUMGR_BLAS_MAJOR * 1000;                           \
	}

#if VGPUMGR_BLAS_LT
TEXTS(cublasLt, VG_MATH_LT)

/* Nothing is logged here: the calls are the host's. */
#define LOGGING(name, ...)                          \
	BLAS_API int cublasLtLogger##name(__VA_ARGS__); \
	int cublasLtLogger##name(__VA_ARGS__)           \
	{                                           \
		return BLAS_OK;                     \
	}
LOGGING(SetCallback, void *callback __attribute__((unused)))
LOGGING(SetFile, FILE *file __attribute__((unused)))
LOGGING(OpenFile, const char *name __attribute__((unused)))
LOGGING(SetLevel, int level __attribute__((unused)))
LOGGING(SetMask, int mask __attribute__((unused)))
LOGGING(ForceDisable, void)
#else
TEXTS(cublas, VG_MATH_BLAS)

static _Atomic(void *) callback;

BLAS_API int cublasLoggerConfigure(int on, int to_stdout, int to_stderr, const char *name);
int cublasLoggerConfigure(int on, int to_stdout, int to_stderr, const char *name)
{
	(void)on, (void)to_stdout, (void)to_stderr, (void)name;
	return BLAS_OK;
}

BLAS_API int cublasSetLoggerCallback(void *function);
int cublasSetLoggerCallback(void *function)
{
	callback = function;
	return BLAS_OK;
}

BLAS_API int cublasGetLoggerCallback(void **function);
int cublasGetLoggerCallback(void **function)
{
	if (!function)
		return BLAS_INVALID_VALUE;
	*function = callback;
	return BLAS_OK;
}

BLAS_API void cublasXerbla(const char *name, int argument);
void cublasXerbla(const char *name, int argument)
{
	fprintf(stderr, " ** On entry to %s, parameter number %d had an illegal value\n", name, argument);
}
#endif
