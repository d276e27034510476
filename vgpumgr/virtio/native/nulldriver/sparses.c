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

/* Handles, objects and descriptors that were made and have not ended, and all that were made. */
static atomic_ulong live, all;

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
	atomic_fetch_add(&all, 1);
	return OK;
}

/* All are written, so that a sanitizer notices what has ended already. */
static int use(void *object)
{
	memset(object, 1, OBJECT_BYTES);
	return OK;
}

static int use_all(void *const *objects, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		use(objects[i]);
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
USED(cusparseCscSetPointers)
USED(cusparseCooSetPointers)
USED(cusparseSpMatSetValues)
USED(cusparseDnMatSetValues)
USED(cusparseDnVecSetValues)
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

/* A size is how many there were of all that is made, so that a guest sees whether one was made for its question. */
FUNCTION(cusparseSpSV_bufferSize, void *handle, int op, const void *alpha, void *matrix, void *x, void *y, int type, int algorithm,
	 void *object, size_t *size)
{
	(void)handle, (void)op, (void)alpha, (void)type, (void)algorithm;
	*size = atomic_load(&all);
	return use_all((void *[]){ matrix, x, y, object }, 4);
}

FUNCTION(cusparseSpSM_bufferSize, void *handle, int a, int b, const void *alpha, void *matrix, void *right, void *result, int type,
	 int algorithm, void *object, size_t *size)
{
	(void)handle, (void)a, (void)b, (void)alpha, (void)type, (void)algorithm;
	*size = atomic_load(&all);
	return use_all((void *[]){ matrix, right, result, object }, 4);
}

FUNCTION(cusparseSpMM, void *handle, int a, int b, const void *alpha, void *matrix, void *dense, const void *beta, void *result)
{
	(void)handle, (void)a, (void)b, (void)alpha, (void)beta;
	return use_all((void *[]){ matrix, dense, result }, 3);
}

FUNCTION(cusparseGather, void *handle, void *dense, void *entries)
{
	(void)handle;
	return use_all((void *[]){ dense, entries }, 2);
}

FUNCTION(cusparseScsrgeam2, void *handle, int m, int n, const void *alpha, void *descr_a, int nnz_a, const void *values_a,
	 const void *rows_a, const void *columns_a, const void *beta, void *descr_b, int nnz_b, const void *values_b, const void *rows_b,
	 const void *columns_b, void *descr_c)
{
	(void)handle, (void)m, (void)n, (void)alpha, (void)nnz_a, (void)values_a, (void)rows_a, (void)columns_a, (void)beta;
	(void)nnz_b, (void)values_b, (void)rows_b, (void)columns_b;
	return use_all((void *[]){ descr_a, descr_b, descr_c }, 3);
}

#define PRODUCT(name)                                                                                                      \
	FUNCTION(name, void *handle, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c,   \
		 int type, int algorithm, void *object)                                                                    \
	{                                                                                                                  \
		(void)handle, (void)op_a, (void)op_b, (void)alpha, (void)beta, (void)type, (void)algorithm;                \
		return use_all((void *[]){ a, b, c, object }, 4);                                                          \
	}
PRODUCT(cusparseSpGEMM_workEstimation)
PRODUCT(cusparseSpGEMM_compute)
PRODUCT(cusparseSpGEMM_copy)

FUNCTION(cusparseSpSV_solve, void *handle, int op, const void *alpha, void *matrix, void *x, void *y, int type, int algorithm,
	 void *object)
{
	(void)handle, (void)op, (void)alpha, (void)type, (void)algorithm;
	return use_all((void *[]){ matrix, x, y, object }, 4);
}

FUNCTION(cusparseSpSM_solve, void *handle, int a, int b, const void *alpha, void *matrix, void *right, void *result, int type,
	 int algorithm, void *object)
{
	(void)handle, (void)a, (void)b, (void)alpha, (void)type, (void)algorithm;
	return use_all((void *[]){ matrix, right, result, object }, 4);
}

FUNCTION(cusparseXbsrsv2_zeroPivot, void *handle, void *object, int *position)
{
	(void)handle, (void)position;
	use(object);
	return ZERO_PIVOT;
}
