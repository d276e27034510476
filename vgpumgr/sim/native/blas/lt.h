/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cuBLASLt, inside. Descriptors fit into the opaque structs of the headers of CUDA 12, the smaller ones. */
#ifndef VGPUMGR_SIM_BLAS_LT_H
#define VGPUMGR_SIM_BLAS_LT_H

#include "blas.h"

enum { LT_LAYOUT_BYTES = 64, LT_DESC_BYTES = 256, LT_PREFERENCE_BYTES = 64, LT_TRANSFORM_BYTES = 64, LT_ALGO_BYTES = 64 };
enum { LT_COL = 0, LT_ROW = 1 };

struct lt_layout {
	int32_t type, order;
	uint64_t rows, cols;
	int64_t ld, stride, plane_offset;
	int32_t batch, batch_mode;
};

enum {
	LT_DEFAULT = 1,
	LT_RELU = 2,
	LT_BIAS = 4,
	LT_DRELU = 8 | 128,
	LT_BGRAD = 16,
	LT_GELU = 32,
	LT_DGELU = 64 | 128,
	LT_AUX = 128,
	LT_BGRADA = 256,
	LT_BGRADB = 512,
};

struct lt_desc {
	int32_t compute, scale, pointer_mode, op_a, op_b, op_c, fill, sm_count;
	uint32_t epilogue;
	int32_t aux_type, bias_type;
	int8_t fast_accumulation;
	void *bias, *aux;
	int64_t bias_stride, aux_ld, aux_stride, alpha_stride, alpha_batch_stride, beta_batch_stride;
	void *scales[5];   /* A, B, C, D, and the largest of D */
	void *aux_scale, *aux_largest, *out_scale, *emulation;
	int32_t scale_modes[5], out_scale_mode;
	uint32_t invariance;
};

struct lt_preference {
	uint32_t search, reductions, alignments[4];
	uint64_t workspace, implementations;
	float waves;
};

struct lt_transform {
	int32_t scale, pointer_mode, op_a, op_b;
};

/* cublasLtMatmulAlgo_t */
struct lt_algo {
	uint32_t magic;
	int32_t id, split_k;
	uint32_t tile, reduction, swizzle, option, stages;
	uint16_t inner, cluster;
	unsigned char reserved[LT_ALGO_BYTES - 36];
};

/* cublasLtMatmulHeuristicResult_t */
struct lt_result {
	struct lt_algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

/* One product, as a descriptor and four layouts say. */
struct lt_problem {
	struct lt_desc desc;
	struct lt_layout a, b, c, d;
};

/* lt_api.c: attributes of an object, by number */
struct lt_attribute {
	int id;
	uint16_t offset, size;
};
int lt_set(const struct lt_attribute *table, size_t n, void *object, int id, const void *value, size_t size);
int lt_get(const struct lt_attribute *table, size_t n, const void *object, int id, void *value, size_t size, size_t *written);
/* Gives out a value as the functions named Get...Attribute do. */
int lt_give(const void *value, size_t needed, void *out, size_t size, size_t *written);

/* lt_check.c */
/* A status for a problem; NOT_SUPPORTED for what the documentation's tables do not list. */
int lt_check(const struct lt_problem *p);
int lt_check_types(int compute, int scale, int a, int b, int c, int d);
/* Where element (i, j) of a batch's matrix lies, counted in elements. */
static inline int64_t lt_place(const struct lt_layout *l, int64_t batch, int64_t i, int64_t j)
{
	return batch * l->stride + (l->order == LT_ROW ? i * l->ld + j : j * l->ld + i);
}
/* Bytes of one matrix. */
int64_t lt_bytes(const struct lt_layout *l);
int lt_check_layout(const struct lt_layout *l);
bool lt_reach_matrix(struct work *work, const struct lt_layout *l, const void *data);

/* lt_algo.c */
/* Workspace that an algorithm takes; -1: it is none. */
int64_t lt_algo_workspace(const struct lt_algo *algo);

/* lt_epilogue.c: what is done with a result before it is stored. */
struct lt_result_matrix {
	const struct lt_problem *problem;
	int64_t batch, m, n;
	int base;
	void *data; /* m by n, columns first, in the base type */
};
int lt_check_epilogue(const struct lt_problem *p);
bool lt_reach_epilogue(struct work *work, const struct lt_problem *p);
void lt_finish(const struct lt_result_matrix *r);
/* BGRADA and BGRADB: sums of an operand, already turned, m by k or k by n. */
void lt_sum_operands(const struct lt_problem *p, int64_t batch, const void *a, const void *b, int base);

#endif
