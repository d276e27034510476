/* SPDX-License-Identifier: Apache-2.0 */
/* cuSPARSE's descriptors as they travel behind the words of a call (docs/wire-format.md, "Mathematics libraries"). */
#ifndef VG_SPARSE_WIRE_H
#define VG_SPARSE_WIRE_H

#include <stdint.h>

/* cusparseFormat_t, cusparseIndexType_t, cusparseOrder_t: those that there are descriptors of. */
enum { SPARSE_CSR = 1, SPARSE_CSC = 2, SPARSE_COO = 3, SPARSE_BSR = 6 };
enum { SPARSE_INDEX_16U = 1, SPARSE_INDEX_32I = 2, SPARSE_INDEX_64I = 3 };
enum { SPARSE_COLUMNS = 1, SPARSE_ROWS = 2 };

/* A cusparseSpMatDescr_t. Where there are no offsets (COO), these are the rows; nnz counts blocks where there are blocks. */
struct sparse_matrix {
	uint8_t format, offsets_type, indices_type, base, type, order;
	uint8_t fill, diag;       /* attributes: one more than their values; 0: not set */
	int64_t rows, cols, nnz;
	uint64_t offsets, indices, values; /* on the device */
	int64_t batch, offsets_stride, cols_stride, values_stride;
	int64_t row_block, col_block;
};

/* A cusparseDnMatDescr_t. */
struct sparse_dense {
	uint8_t type, order, zero[6];
	int64_t rows, cols, ld;
	uint64_t values;
	int64_t batch, stride;
};

/* A cusparseDnVecDescr_t. */
struct sparse_vector {
	uint8_t type, zero[7];
	int64_t size;
	uint64_t values;
};

/* A cusparseSpVecDescr_t. */
struct sparse_entries {
	uint8_t indices_type, base, type, zero[5];
	int64_t size, nnz;
	uint64_t indices, values;
};

_Static_assert(sizeof(struct sparse_matrix) == 104 && sizeof(struct sparse_dense) == 56 && sizeof(struct sparse_vector) == 24 &&
	       sizeof(struct sparse_entries) == 40, "as vgpumgr/virtio/codegen/blas.py has them");

/* Any of them. */
union sparse_any {
	struct sparse_matrix matrix;
	struct sparse_dense dense;
	struct sparse_vector vector;
	struct sparse_entries entries;
};

/* A cusparseMatDescr_t as a word: that it is given, and what it is set to. */
#define SPARSE_DESCR (1ull << 63)
enum { SPARSE_DESCR_TYPE = 0, SPARSE_DESCR_FILL = 8, SPARSE_DESCR_DIAG = 16, SPARSE_DESCR_BASE = 24 };

/* math_make of cuSPARSE: an object that is kept. */
enum { SPARSE_SPGEMM = 1, SPARSE_SPSV = 2, SPARSE_SPSM = 3, SPARSE_BSRSV2 = 4, SPARSE_BSRSM2 = 5 };

/* cusparseStatus_t */
enum { SPARSE_OK = 0, SPARSE_NOT_INITIALIZED = 1, SPARSE_ALLOC_FAILED = 2, SPARSE_INVALID_VALUE = 3, SPARSE_EXECUTION_FAILED = 6,
       SPARSE_INTERNAL_ERROR = 7, SPARSE_MATRIX_TYPE_NOT_SUPPORTED = 8, SPARSE_ZERO_PIVOT = 9, SPARSE_NOT_SUPPORTED = 10,
       SPARSE_INSUFFICIENT_RESOURCES = 11 };

#endif
