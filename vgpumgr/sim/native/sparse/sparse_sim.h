/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuSPARSE, inside. A function checks what it is called with and posts a job on the handle's stream. A job lists
 * the entries of its matrices, whatever their format, and computes with them in double precision.
 */
#ifndef VGPUMGR_SIM_SPARSE_H
#define VGPUMGR_SIM_SPARSE_H

#include <stdatomic.h>

#include "blas.h"
#include "descriptors.h"

/* An exported function, with its prototype. */
#define SP_API(name, ...) SPARSE_FUNCTION(int, name, __VA_ARGS__)

/* SP_BUFFER: bytes of any work area; nothing is kept there. */
enum { SP_BUFFER = 512, SP_MATRICES = 3, SP_AREAS = 6, SP_NUMBERS = 4 };

struct sp_handle {
	uint32_t magic;
	CUstream stream;
	int pointer_mode;
};

/* Where a solution found no pivot; the jobs that look for it have it, too. */
struct sp_pivot {
	atomic_int users;
	atomic_int at;            /* -1: there is none */
};

/* The product that is being made. */
struct sp_product {
	int64_t rows, count;
	int64_t *offsets, *cols;
	double complex *values;
};

/* Of all kinds. */
struct sp_object {
	uint64_t kind;
	bool analysed;
	struct sp_pivot *pivot;
	struct sp_product product;
};

struct sp_scalar {
	const void *at;           /* on the device; NULL: the value is there */
	double complex value;
};

struct sp_job {
	struct work work;
	void (*compute)(struct sp_job *job);
	int scalar_type;
	struct sp_scalar alpha, beta;
	int op_a, op_b;
	bool turned;              /* what is solved for is turned as the right side is */
	bool lower, unit;
	struct sparse_matrix sparse[SP_MATRICES];
	struct sparse_dense dense[SP_MATRICES];
	struct sparse_entries entries;
	const void *buffer;
	void *areas[SP_AREAS];
	int64_t numbers[SP_NUMBERS];
	struct sp_pivot *pivot;
	struct sp_product *product;
	struct sp_product given;  /* the job's own, freed with it */
};

/* ---- handle.c */
struct sp_handle *sp_handle(void *handle);
int sp_status(int of_blas);

/* ---- job.c */
/* A status; scalars may be NULL where there are none. */
int sp_begin(void *handle, struct sp_job *job, void (*compute)(struct sp_job *), int scalar_type, const void *alpha, const void *beta);
int sp_post(void *handle, const struct sp_job *job, bool wait);
/* A work area, which has to be there. */
int sp_with_buffer(void *handle, struct sp_job *job, const void *buffer);
/* What may be written to *size. A status. */
int sp_size(void *handle, int status, size_t *size);
/* Memory for a job; NULL: there is none, and its context fails. */
void *sp_area(struct sp_job *job, int64_t count, size_t bytes);
void sp_end_product(struct sp_product *product);
void sp_leave_pivot(struct sp_pivot *pivot);

/* ---- entries.c: what is in matrices */
struct sp_entry {
	int64_t row, col, at;     /* at: of its value, in elements */
};
struct sp_list {
	struct sp_entry *entries;
	int64_t count;
};
int64_t sp_rows(const struct sparse_matrix *m);
int64_t sp_cols(const struct sparse_matrix *m);
/* False: what is not there makes the context fail. The caller frees entries in any case. */
bool sp_list(struct sp_job *job, const struct sparse_matrix *m, int64_t batch, struct sp_list *list);
/* The same, turned where an operation is not 0, by rows, and by columns in each. offsets: rows + 1 of them, the caller's, too. */
bool sp_list_rows(struct sp_job *job, const struct sparse_matrix *m, int op, int64_t batch, struct sp_list *list, int64_t **offsets);
double complex sp_value(const struct sparse_matrix *m, int op, int64_t batch, const struct sp_entry *e);
int64_t sp_index(const void *array, int type, int64_t i);
void sp_put_index(void *array, int type, int64_t i, int64_t value);
bool sp_reach_index(struct sp_job *job, const void *array, int type, int64_t count);
/* Whether there are such types. A status. */
int sp_check_matrix(const struct sparse_matrix *m);
int sp_check_dense(const struct sparse_dense *m);
bool sp_reach_dense(struct sp_job *job, const struct sparse_dense *m);
/* With an operation, in that batch. */
double complex sp_get(const struct sparse_dense *m, int op, int64_t batch, int64_t i, int64_t j);
void sp_put(const struct sparse_dense *m, int op, int64_t batch, int64_t i, int64_t j, double complex value);
/* A vector as a matrix of one column. */
struct sparse_dense sp_column(const struct sparse_vector *v);
/* A matrix of blocks, or of rows, as the interface of types has them. */
struct sparse_matrix sp_blocks(const void *descr, int direction, int rows, int cols, int nnz, int type, const void *values,
			       const int *offsets, const int *indices, int block);
static inline struct sparse_dense sp_dense(int type, int64_t rows, int64_t cols, int64_t ld, const void *values)
{
	return (struct sparse_dense){ .type = (uint8_t)type, .order = SPARSE_COLUMNS, .rows = rows, .cols = cols, .ld = ld,
				      .values = (uintptr_t)values, .batch = 1 };
}
static inline bool sp_is_op(int op)
{
	return op >= 0 && op <= 2;
}

/* ---- products.c, solve.c: what the generic interface and that of types share */
void sp_multiply(struct sp_job *job);
void sp_solve(struct sp_job *job);

/* ---- objects.c */
struct sp_object *sp_object(void *object, uint64_t kind);

#endif
