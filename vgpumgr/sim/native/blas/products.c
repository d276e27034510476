/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices that BLAS has no routine for: of many types, and those that fill one triangle. */
#include <stdlib.h>

#include "product.h"
#include "runs.h"

static double complex scalar(const void *address, int type)
{
	return bl_load(address, type, 0);
}

void run_gemm_t(const struct call *c)
{
	const struct args_gemmT *a = (const void *)c->args;

	bl_product(&(struct product){
		.m = a->m, .n = a->n, .k = a->k, .op_a = (int)a->transa, .op_b = (int)a->transb, .a = a->A, .b = a->B,
		.a_type = (int)a->Atype, .b_type = (int)a->Btype, .c_type = (int)a->Ctype, .lda = a->lda, .ldb = a->ldb,
		.alpha = scalar(a->alpha, c->function->scalar), .beta = scalar(a->beta, c->function->scalar),
		.c = a->C, .ldc = a->ldc,
	});
}

void run_gemm_ex(const struct call *c)
{
	const struct args_gemmEx *a = (const void *)c->args;
	int scale = bl_call_scale(c->function, c->args);

	bl_product(&(struct product){
		.m = a->m, .n = a->n, .k = a->k, .op_a = (int)a->transa, .op_b = (int)a->transb, .a = a->A, .b = a->B,
		.a_type = (int)a->Atype, .b_type = (int)a->Btype, .c_type = (int)a->Ctype, .lda = a->lda, .ldb = a->ldb,
		.alpha = scalar(a->alpha, scale), .beta = scalar(a->beta, scale), .c = a->C, .ldc = a->ldc,
	});
}

void run_gemm_batched_ex(const struct call *c)
{
	const struct args_gemmBatchedEx *a = (const void *)c->args;
	int scale = bl_call_scale(c->function, c->args);
	struct product p = {
		.m = a->m, .n = a->n, .k = a->k, .op_a = (int)a->transa, .op_b = (int)a->transb,
		.a_type = (int)a->Atype, .b_type = (int)a->Btype, .c_type = (int)a->Ctype, .lda = a->lda, .ldb = a->ldb,
		.alpha = scalar(a->alpha, scale), .beta = scalar(a->beta, scale), .ldc = a->ldc,
	};

	if (a->m <= 0 || a->n <= 0)
		return;
	for (int64_t i = 0; i < a->batchCount; i++) {
		/* arrays of operands that are not read may be missing */
		p.a = a->k && p.alpha != 0 ? bl_entry(a->Aarray, i) : NULL;
		p.b = a->k && p.alpha != 0 ? bl_entry(a->Barray, i) : NULL;
		p.c = bl_entry(a->Carray, i);
		bl_product(&p);
	}
}

void run_gemm_strided_ex(const struct call *c)
{
	const struct args_gemmStridedEx *a = (const void *)c->args;
	int scale = bl_call_scale(c->function, c->args);
	struct product p = {
		.m = a->m, .n = a->n, .k = a->k, .op_a = (int)a->transa, .op_b = (int)a->transb,
		.a_type = (int)a->Atype, .b_type = (int)a->Btype, .c_type = (int)a->Ctype, .lda = a->lda, .ldb = a->ldb,
		.alpha = scalar(a->alpha, scale), .beta = scalar(a->beta, scale), .ldc = a->ldc,
	};

	for (int64_t i = 0; i < a->batchCount; i++) {
		p.a = a->A + i * a->strideA * (int64_t)bl_size(p.a_type);
		p.b = a->B + i * a->strideB * (int64_t)bl_size(p.b_type);
		p.c = a->C + i * a->strideC * (int64_t)bl_size(p.c_type);
		bl_product(&p);
	}
}

/* One triangle of alpha * op(A) * op(B)' + beta * C, where the product is computed whole. */
struct triangle {
	int uplo, op;
	bool conjugate; /* B is, and the diagonal is real */
	int64_t n, k, lda, ldb, ldc;
	const char *a, *b;
	char *c;
	int a_type, c_type;
	double complex alpha, beta;
};

static void fill_triangle(const struct triangle *t, const void *whole, int base)
{
	for (int64_t j = 0; j < t->n; j++) {
		int64_t from = t->uplo == BL_FILL_UPPER ? 0 : j, to = t->uplo == BL_FILL_UPPER ? j + 1 : t->n;

		for (int64_t i = from; i < to; i++) {
			double complex value = bl_load(whole, base, j * t->n + i);

			if (t->beta != 0)
				value += t->beta * bl_load(t->c, t->c_type, j * t->ldc + i);
			if (t->conjugate && i == j && t->a == t->b)
				value = creal(value);
			bl_store(t->c, t->c_type, j * t->ldc + i, value);
		}
	}
}

static void make_triangle(const struct triangle *t)
{
	int base = bl_base(t->c_type), turned = t->conjugate ? BL_OP_C : BL_OP_T;
	void *whole = malloc((size_t)(t->n * t->n + 1) * bl_size(base));

	if (whole && bl_product(&(struct product){
			     .m = t->n, .n = t->n, .k = t->k, .op_a = t->op ? turned : BL_OP_N, .op_b = t->op ? BL_OP_N : turned,
			     .a = t->a, .b = t->b, .a_type = t->a_type, .b_type = t->a_type, .c_type = base, .lda = t->lda,
			     .ldb = t->ldb, .alpha = t->alpha, .c = whole, .ldc = t->n }))
		fill_triangle(t, whole, base);
	free(whole);
}

void run_syrk_ex(const struct call *c)
{
	const struct args_syrkEx *a = (const void *)c->args;

	make_triangle(&(struct triangle){
		.uplo = (int)a->uplo, .op = (int)a->trans, .n = a->n, .k = a->k, .lda = a->lda, .ldb = a->lda,
		.ldc = a->ldc, .a = a->A, .b = a->A, .c = a->C, .a_type = (int)a->Atype, .c_type = (int)a->Ctype,
		.alpha = scalar(a->alpha, BL_C_32F), .beta = scalar(a->beta, BL_C_32F),
	});
}

void run_herk_ex(const struct call *c)
{
	const struct args_herkEx *a = (const void *)c->args;

	make_triangle(&(struct triangle){
		.uplo = (int)a->uplo, .op = (int)a->trans, .conjugate = true, .n = a->n, .k = a->k, .lda = a->lda,
		.ldb = a->lda, .ldc = a->ldc, .a = a->A, .b = a->A, .c = a->C, .a_type = (int)a->Atype,
		.c_type = (int)a->Ctype, .alpha = scalar(a->alpha, BL_R_32F), .beta = scalar(a->beta, BL_R_32F),
	});
}

/* The four families have the same arguments. */
static void fill_rank_k(const struct call *c, bool conjugate, int beta_type)
{
	const struct args_syrkx *a = (const void *)c->args;
	int type = c->function->element;

	make_triangle(&(struct triangle){
		.uplo = (int)a->uplo, .op = (int)a->trans, .conjugate = conjugate, .n = a->n, .k = a->k, .lda = a->lda,
		.ldb = a->ldb, .ldc = a->ldc, .a = a->A, .b = a->B, .c = a->C, .a_type = type, .c_type = type,
		.alpha = scalar(a->alpha, type), .beta = scalar(a->beta, beta_type),
	});
}

void run_syrkx(const struct call *c)
{
	fill_rank_k(c, false, c->function->element);
}

void run_cherkx(const struct call *c)
{
	fill_rank_k(c, true, BL_R_32F);
}

void run_zherkx(const struct call *c)
{
	fill_rank_k(c, true, BL_R_64F);
}
