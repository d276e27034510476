/* SPDX-License-Identifier: Apache-2.0 */
/* cuSOLVER without arithmetic: what is kept is made and ends, and all else succeeds at once. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, ALLOC_FAILED = 2, OBJECT_BYTES = 16 };

/* Handles, objects and parameters that were made and have not ended. */
static atomic_ulong live;

API unsigned long null_solvers_live(void);
unsigned long null_solvers_live(void)
{
	return atomic_load(&live);
}

static int make(void **object)
{
	*object = calloc(1, OBJECT_BYTES);
	if (!*object)
		return ALLOC_FAILED;
	atomic_fetch_add(&live, 1);
	return OK;
}

static int end(void *object)
{
	free(object);
	atomic_fetch_sub(&live, 1);
	return OK;
}

#define KEPT(made, ended)           \
	API int made(void **object); \
	int made(void **object)      \
	{                           \
		return make(object); \
	}                           \
	API int ended(void *object); \
	int ended(void *object)      \
	{                           \
		return end(object);  \
	}

KEPT(cusolverDnCreate, cusolverDnDestroy)
KEPT(cusolverDnCreateSyevjInfo, cusolverDnDestroySyevjInfo)
KEPT(cusolverDnCreateGesvdjInfo, cusolverDnDestroyGesvdjInfo)
KEPT(cusolverDnCreateParams, cusolverDnDestroyParams)

API int cusolverGetProperty(int number, int *value);
int cusolverGetProperty(int number, int *value)
{
	*value = number == 0 ? 12 : number == 1 ? 4 : 1;
	return OK;
}

/* Objects and areas on the host are written, so that a sanitizer notices where they are not. */
static int write_area(void *area, size_t bytes)
{
	if (bytes)
		memset(area, 1, bytes);
	return OK;
}

API int cusolverDnXsyevjSetSortEig(void *object, int sort);
int cusolverDnXsyevjSetSortEig(void *object, int sort)
{
	(void)sort;
	return write_area(object, OBJECT_BYTES);
}

API int cusolverDnXgesvdjSetSortEig(void *object, int sort);
int cusolverDnXgesvdjSetSortEig(void *object, int sort)
{
	(void)sort;
	return write_area(object, OBJECT_BYTES);
}

API int cusolverDnSetAdvOptions(void *params, int function, int algorithm);
int cusolverDnSetAdvOptions(void *params, int function, int algorithm)
{
	(void)function, (void)algorithm;
	return write_area(params, OBJECT_BYTES);
}

API int cusolverDnXsyevjGetResidual(void *handle, void *object, double *residual);
int cusolverDnXsyevjGetResidual(void *handle, void *object, double *residual)
{
	(void)handle;
	*residual = 0;
	return write_area(object, OBJECT_BYTES);
}

API int cusolverDnXpotrf(void *handle, void *params, int uplo, long long n, int type, void *a, long long lda, int compute,
			 void *work, size_t bytes, void *area, size_t area_bytes, int *info);
int cusolverDnXpotrf(void *handle, void *params, int uplo, long long n, int type, void *a, long long lda, int compute, void *work,
		     size_t bytes, void *area, size_t area_bytes, int *info)
{
	(void)handle, (void)params, (void)uplo, (void)n, (void)type, (void)a, (void)lda, (void)compute, (void)work, (void)bytes;
	(void)info;
	return write_area(area, area_bytes);
}
