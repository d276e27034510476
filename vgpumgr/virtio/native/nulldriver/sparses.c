/* SPDX-License-Identifier: Apache-2.0 */
/* cuSPARSE without arithmetic: what is kept is made and ends, and all else succeeds at once. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define FUNCTION(name, ...)          \
	API int name(__VA_ARGS__);   \
	int name(__VA_ARGS__)

enum { OK = 0, ALLOC_FAILED = 2, ZERO_PIVOT = 9, OBJECT_BYTES = 64 };

/* Handles, objects and descriptors that were made and have not ended. */
static atomic_ulong live;

API unsigned long null_sparses_live(void);
unsigned long null_sparses_live(void)
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

/* All are written, so that a sanitizer notices what has ended already. */
static int use(void *object)
{
	memset(object, 1, OBJECT_BYTES);
	return OK;
}

static int end(void *object)
{
	free(object);
	atomic_fetch_sub(&live, 1);
	return OK;
}

#define KEPT(made, ended)            \
	FUNCTION(made, void **object) \
	{                            \
		return make(object); \
	}                            \
	FUNCTION(ended, void *object) \
	{                            \
		return end(object);  \
	}

KEPT(cusparseCreate, cusparseDestroy)
KEPT(cusparseCreateMatDescr, cusparseDestroyMatDescr)
KEPT(cusparseCreateCsr, cusparseDestroySpMat)
KEPT(cusparseCreateDnMat, cusparseDestroyDnMat)
KEPT(cusparseCreateDnVec, cusparseDestroyDnVec)
KEPT(cusparseCreateSpVec, cusparseDestroySpVec)
KEPT(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)
KEPT(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
KEPT(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
KEPT(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
KEPT(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)

#define MADE(name)                   \
	FUNCTION(name, void **object) \
	{                            \
		return make(object); \
	}
MADE(cusparseCreateCsc)
MADE(cusparseCreateCoo)
MADE(cusparseCreateBsr)

FUNCTION(cusparseGetProperty, int number, int *value)
{
	*value = number == 0 ? 12 : number == 1 ? 5 : 8;
	return OK;
}

#define USED(name)                                             \
	FUNCTION(name, void *object, int value)                \
	{                                                      \
		(void)value;                                   \
		return use(object);                            \
	}
USED(cusparseSpMatSetAttribute)
USED(cusparseCsrSetPointers)
USED(cusparseCsrSetStridedBatch)
USED(cusparseCooSetStridedBatch)
USED(cusparseBsrSetStridedBatch)
USED(cusparseDnMatSetStridedBatch)
USED(cusparseSetMatType)
USED(cusparseSetMatFillMode)
USED(cusparseSetMatDiagType)
USED(cusparseSetMatIndexBase)

FUNCTION(cusparseSpMatGetSize, void *matrix, int64_t *rows, int64_t *cols, int64_t *nnz)
{
	*rows = *cols = *nnz = 7;
	return use(matrix);
}

FUNCTION(cusparseSpMM, void *handle, int a, int b, const void *alpha, void *matrix, void *dense, const void *beta, void *result)
{
	(void)handle, (void)a, (void)b, (void)alpha, (void)beta;
	use(dense);
	use(result);
	return use(matrix);
}

FUNCTION(cusparseSpSV_solve, void *handle, int op, const void *alpha, void *matrix, void *x, void *y, int type, int algorithm,
	 void *object)
{
	(void)handle, (void)op, (void)alpha, (void)type, (void)algorithm;
	use(x);
	use(y);
	use(matrix);
	return use(object);
}

FUNCTION(cusparseXbsrsv2_zeroPivot, void *handle, void *object, int *position)
{
	(void)handle, (void)position;
	use(object);
	return ZERO_PIVOT;
}
