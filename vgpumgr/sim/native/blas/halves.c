/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of half precision with letters in their names: computed in single, rounded once. */
#include "product.h"
#include "runs.h"

struct mixed {
	int op, type, result;
	int64_t m, n, lda, incx, incy;
	double alpha, beta;
};

static void multiply(const struct mixed *v, const void *a, const void *x, void *y)
{
	int64_t length = v->op ? v->n : v->m, depth = v->op ? v->m : v->n;
	int64_t start_x = v->incx < 0 ? (1 - depth) * v->incx : 0, start_y = v->incy < 0 ? (1 - length) * v->incy : 0;

	for (int64_t i = 0; i < length; i++) {
		double sum = 0, old = v->beta != 0 ? creal(bl_load(y, v->result, start_y + i * v->incy)) : 0;

		for (int64_t l = 0; v->alpha != 0 && l < depth; l++)
			sum += creal(bl_load(a, v->type, v->op ? i * v->lda + l : l * v->lda + i)) *
			       creal(bl_load(x, v->type, start_x + l * v->incx));
		bl_store(y, v->result, start_y + i * v->incy, v->alpha * sum + v->beta * old);
	}
}

void run_gemv_mixed_batched(const struct call *c)
{
	const struct args_gemvMixedBatched *a = (const void *)c->args;
	struct mixed v = {
		.op = (int)a->trans, .type = c->function->element, .result = c->function->result, .m = a->m, .n = a->n,
		.lda = a->lda, .incx = a->incx, .incy = a->incy, .alpha = creal(bl_load(a->alpha, BL_R_32F, 0)),
		.beta = creal(bl_load(a->beta, BL_R_32F, 0)),
	};

	for (int64_t i = 0; a->m && a->n && i < a->batchCount; i++)
		multiply(&v, v.alpha != 0 ? bl_entry(a->Aarray, i) : NULL, v.alpha != 0 ? bl_entry(a->xarray, i) : NULL,
			 bl_entry(a->yarray, i));
}

void run_gemv_mixed_strided(const struct call *c)
{
	const struct args_gemvMixedStrided *a = (const void *)c->args;
	struct mixed v = {
		.op = (int)a->trans, .type = c->function->element, .result = c->function->result, .m = a->m, .n = a->n,
		.lda = a->lda, .incx = a->incx, .incy = a->incy, .alpha = creal(bl_load(a->alpha, BL_R_32F, 0)),
		.beta = creal(bl_load(a->beta, BL_R_32F, 0)),
	};
	int64_t size = (int64_t)bl_size(v.type), result = (int64_t)bl_size(v.result);

	for (int64_t i = 0; a->m && a->n && i < a->batchCount; i++)
		multiply(&v, a->A + i * a->strideA * size, a->x + i * a->stridex * size, a->y + i * a->stridey * result);
}

/* What the three families have in common; their structs begin alike, and scalars have a half's type. */
static struct product begin(const struct call *c)
{
	const struct args_hgemm *a = (const void *)c->args;

	return (struct product){
		.m = a->m, .n = a->n, .k = a->k, .op_a = (int)a->transa, .op_b = (int)a->transb, .a_type = BL_R_16F,
		.b_type = BL_R_16F, .c_type = BL_R_16F, .alpha = bl_load(a->alpha, BL_R_16F, 0),
	};
}

void run_hgemm(const struct call *c)
{
	const struct args_hgemm *a = (const void *)c->args;
	struct product p = begin(c);

	p.beta = bl_load(a->beta, BL_R_16F, 0);
	p.a = a->A;
	p.b = a->B;
	p.c = a->C;
	p.lda = a->lda;
	p.ldb = a->ldb;
	p.ldc = a->ldc;
	bl_product(&p);
}

void run_hgemm_batched(const struct call *c)
{
	const struct args_hgemmBatched *a = (const void *)c->args;
	struct product p = begin(c);
	bool read = a->k && p.alpha != 0;

	p.beta = bl_load(a->beta, BL_R_16F, 0);
	p.lda = a->lda;
	p.ldb = a->ldb;
	p.ldc = a->ldc;
	for (int64_t i = 0; p.m && p.n && i < a->batchCount; i++) {
		p.a = read ? bl_entry(a->Aarray, i) : NULL;
		p.b = read ? bl_entry(a->Barray, i) : NULL;
		p.c = bl_entry(a->Carray, i);
		bl_product(&p);
	}
}

void run_hgemm_strided(const struct call *c)
{
	const struct args_hgemmStrided *a = (const void *)c->args;
	struct product p = begin(c);
	int64_t size = (int64_t)bl_size(BL_R_16F);

	p.beta = bl_load(a->beta, BL_R_16F, 0);
	p.lda = a->lda;
	p.ldb = a->ldb;
	p.ldc = a->ldc;
	for (int64_t i = 0; i < a->batchCount; i++) {
		p.a = a->A + i * a->strideA * size;
		p.b = a->B + i * a->strideB * size;
		p.c = a->C + i * a->strideC * size;
		bl_product(&p);
	}
}
