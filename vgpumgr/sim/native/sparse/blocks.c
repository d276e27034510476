/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of types, of matrices of blocks: products and triangular systems. */
#include "sparse_sim.h"

/* What functions of all types are called with; descr and what follows it are the matrix. */
struct blocks {
	int type, direction, op_a, op_b, mb, n, kb, nnzb;
	const void *descr, *values;
	const int *offsets, *indices;
	int block;
};

static bool is_wrong(const struct blocks *b)
{
	return !sparse_settings(b->descr) || b->direction < 0 || b->direction > 1 || !sp_is_op(b->op_a) || !sp_is_op(b->op_b) ||
	       b->mb < 0 || b->n < 0 || b->kb < 0 || b->nnzb < 0 || b->block < 1 || b->block > UINT16_MAX;
}

static int begin(void *handle, struct sp_job *job, void (*compute)(struct sp_job *), const struct blocks *b, const void *alpha,
		 const void *beta)
{
	int status = sp_handle(handle) ? SPARSE_OK : SPARSE_NOT_INITIALIZED;

	if (status == SPARSE_OK)
		status = is_wrong(b) || !alpha ? SPARSE_INVALID_VALUE : sp_begin(handle, job, compute, b->type, alpha, beta);
	if (status != SPARSE_OK)
		return status;
	job->op_a = b->op_a;
	job->op_b = b->op_b;
	job->sparse[0] = sp_blocks(b->descr, b->direction, b->mb, b->kb, b->nnzb, b->type, b->values, b->offsets, b->indices, b->block);
	return sp_check_matrix(&job->sparse[0]);
}

static int multiply_vector(void *handle, const struct blocks *b, const void *alpha, const void *x, const void *beta, void *y)
{
	struct sp_job job;
	int status = beta ? begin(handle, &job, sp_multiply, b, alpha, beta) : SPARSE_INVALID_VALUE;
	int64_t rows = (int64_t)b->mb * b->block, cols = (int64_t)b->kb * b->block;

	if (status != SPARSE_OK)
		return status;
	if (b->op_a)
		return SPARSE_NOT_SUPPORTED;
	job.dense[0] = sp_dense(b->type, cols, 1, cols, x);
	job.dense[1] = sp_dense(b->type, rows, 1, rows, y);
	return sp_post(handle, &job, false);
}

static int multiply_matrix(void *handle, const struct blocks *b, const void *alpha, const void *right, int ldb, const void *beta,
			   void *c, int ldc)
{
	struct sp_job job;
	int status = beta ? begin(handle, &job, sp_multiply, b, alpha, beta) : SPARSE_INVALID_VALUE;
	int64_t rows = (int64_t)b->mb * b->block, cols = (int64_t)b->kb * b->block;

	if (status != SPARSE_OK)
		return status;
	if (b->op_a || b->op_b == BL_OP_C)
		return SPARSE_NOT_SUPPORTED;
	if (ldb < (b->op_b ? b->n : cols) || ldc < rows)
		return SPARSE_INVALID_VALUE;
	job.dense[0] = b->op_b ? sp_dense(b->type, b->n, cols, ldb, right) : sp_dense(b->type, cols, b->n, ldb, right);
	job.dense[1] = sp_dense(b->type, rows, b->n, ldc, c);
	return sp_post(handle, &job, false);
}

static int size_of(void *handle, const struct blocks *b, const struct sp_object *object, int *size)
{
	if (!sp_handle(handle))
		return SPARSE_NOT_INITIALIZED;
	if (is_wrong(b) || !object || !size)
		return SPARSE_INVALID_VALUE;
	*size = SP_BUFFER;
	return SPARSE_OK;
}

/* As documented for both interfaces of systems of blocks. */
static bool is_buffer(const void *buffer)
{
	return buffer && (uintptr_t)buffer % 128 == 0;
}

static int analyse(void *handle, const struct blocks *b, struct sp_object *object, const void *buffer)
{
	int size, status = size_of(handle, b, object, &size);

	if (status == SPARSE_OK) {
		object->analysed = is_buffer(buffer);
		object->pivot->at = -1;
	}
	return status == SPARSE_OK && !is_buffer(buffer) ? SPARSE_INVALID_VALUE : status;
}

static int solve(void *handle, const struct blocks *b, const void *alpha, const struct sp_object *object, const void *right, int64_t ldb,
		 void *x, int64_t ldx, const void *buffer)
{
	struct sp_job job;
	int status = begin(handle, &job, sp_solve, b, alpha, NULL);
	int64_t rows = (int64_t)b->mb * b->block;

	if (status == SPARSE_OK && (!object || !object->analysed || !is_buffer(buffer) || ldb < (b->op_b ? b->n : rows) || ldx < (b->op_b ? b->n : rows)))
		status = SPARSE_INVALID_VALUE;
	if (status != SPARSE_OK)
		return status;
	job.turned = true;
	job.lower = job.sparse[0].fill == 1;
	job.unit = job.sparse[0].diag == 2;
	job.pivot = object->pivot;
	job.dense[0] = b->op_b ? sp_dense(b->type, b->n, rows, ldb, right) : sp_dense(b->type, rows, b->n, ldb, right);
	job.dense[1] = b->op_b ? sp_dense(b->type, b->n, rows, ldx, x) : sp_dense(b->type, rows, b->n, ldx, x);
	return sp_with_buffer(handle, &job, buffer);
}

#define VECTOR_OF(type) (&(struct blocks){ type, direction, op, 0, mb, 1, mb, nnzb, descr, values, offsets, indices, block })
#define MATRIX_OF(type) (&(struct blocks){ type, direction, op, op_b, mb, n, mb, nnzb, descr, values, offsets, indices, block })

#define FUNCTIONS(letter, type)                                                                                                    \
	SP_API(cusparse##letter##bsrmv, void *handle, int direction, int op, int mb, int nb, int nnzb, const void *alpha,           \
	       const void *descr, const void *values, const int *offsets, const int *indices, int block, const void *x,              \
	       const void *beta, void *y)                                                                                          \
	{                                                                                                                          \
		return multiply_vector(handle, &(struct blocks){ type, direction, op, 0, mb, 1, nb, nnzb, descr, values, offsets,    \
								 indices, block }, alpha, x, beta, y);                             \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrmm, void *handle, int direction, int op, int op_b, int mb, int n, int kb, int nnzb,             \
	       const void *alpha, const void *descr, const void *values, const int *offsets, const int *indices, int block,          \
	       const void *b, int ldb, const void *beta, void *c, int ldc)                                                         \
	{                                                                                                                          \
		return multiply_matrix(handle, &(struct blocks){ type, direction, op, op_b, mb, n, kb, nnzb, descr, values, offsets, \
								 indices, block }, alpha, b, ldb, beta, c, ldc);                   \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsv2_bufferSize, void *handle, int direction, int op, int mb, int nnzb, const void *descr,       \
	       const void *values, const int *offsets, const int *indices, int block, void *object, int *size)                       \
	{                                                                                                                          \
		return size_of(handle, VECTOR_OF(type), sp_object(object, SPARSE_BSRSV2), size);                                     \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsv2_analysis, void *handle, int direction, int op, int mb, int nnzb, const void *descr,         \
	       const void *values, const int *offsets, const int *indices, int block, void *object, int policy, void *buffer)        \
	{                                                                                                                          \
		(void)policy;                                                                                                      \
		return analyse(handle, VECTOR_OF(type), sp_object(object, SPARSE_BSRSV2), buffer);                                   \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsv2_solve, void *handle, int direction, int op, int mb, int nnzb, const void *alpha,            \
	       const void *descr, const void *values, const int *offsets, const int *indices, int block, void *object,               \
	       const void *f, void *x, int policy, void *buffer)                                                                   \
	{                                                                                                                          \
		(void)policy;                                                                                                      \
		return solve(handle, VECTOR_OF(type), alpha, sp_object(object, SPARSE_BSRSV2), f, (int64_t)mb * block, x,            \
			     (int64_t)mb * block, buffer);                                                                         \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsm2_bufferSize, void *handle, int direction, int op, int op_b, int mb, int n, int nnzb,         \
	       const void *descr, const void *values, const int *offsets, const int *indices, int block, void *object, int *size)    \
	{                                                                                                                          \
		return size_of(handle, MATRIX_OF(type), sp_object(object, SPARSE_BSRSM2), size);                                     \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsm2_analysis, void *handle, int direction, int op, int op_b, int mb, int n, int nnzb,           \
	       const void *descr, const void *values, const int *offsets, const int *indices, int block, void *object, int policy,   \
	       void *buffer)                                                                                                       \
	{                                                                                                                          \
		(void)policy;                                                                                                      \
		return analyse(handle, MATRIX_OF(type), sp_object(object, SPARSE_BSRSM2), buffer);                                   \
	}                                                                                                                          \
	SP_API(cusparse##letter##bsrsm2_solve, void *handle, int direction, int op, int op_b, int mb, int n, int nnzb,              \
	       const void *alpha, const void *descr, const void *values, const int *offsets, const int *indices, int block,          \
	       void *object, const void *b, int ldb, void *x, int ldx, int policy, void *buffer)                                   \
	{                                                                                                                          \
		(void)policy;                                                                                                      \
		return solve(handle, MATRIX_OF(type), alpha, sp_object(object, SPARSE_BSRSM2), b, ldb, x, ldx, buffer);              \
	}

FUNCTIONS(S, BL_R_32F)
FUNCTIONS(D, BL_R_64F)
FUNCTIONS(C, BL_C_32F)
FUNCTIONS(Z, BL_C_64F)
