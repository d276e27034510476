/* SPDX-License-Identifier: Apache-2.0 */
/* Functions over matrices that BLAS does not have, or has in place only. */
#include <stdlib.h>

#include "runs.h"

/* BLAS multiplies B in place, cuBLAS into C. */
void run_trmm(const struct call *c)
{
	const struct args_trmm *a = (const void *)c->args;
	int type = c->function->element, m = (int)a->m, n = (int)a->n, lda = (int)a->lda, ldc = (int)a->ldc;
	void (*trmm)(const char *, const char *, const char *, const char *, const int *, const int *, const void *,
		     const void *, const int *, void *, const int *);

	*(void **)&trmm = bl_typed_routine(type, "trmm_");
	if (!m || !n || !trmm)
		return;
	if (a->B != a->C && bl_load(a->alpha, type, 0) != 0)
		bl_convert(a->C, type, a->ldc, a->B, type, a->ldb, m, n);
	trmm(&"LR"[a->side], &"LU"[a->uplo], &"NTC"[a->trans], &"NU"[a->diag], &m, &n, a->alpha, a->A, &lda, a->C, &ldc);
}

/* BLAS has this for real matrices only. */
void run_syr2(const struct call *c)
{
	const struct args_csyr2 *a = (const void *)c->args;
	int type = c->function->element;
	double complex alpha = bl_load(a->alpha, type, 0);
	int64_t x = a->incx < 0 ? (1 - a->n) * a->incx : 0, y = a->incy < 0 ? (1 - a->n) * a->incy : 0;

	for (int64_t j = 0; j < a->n; j++) {
		int64_t from = a->uplo == BL_FILL_UPPER ? 0 : j, to = a->uplo == BL_FILL_UPPER ? j + 1 : a->n;

		for (int64_t i = from; i < to; i++) {
			double complex sum = bl_load(a->x, type, x + i * a->incx) * bl_load(a->y, type, y + j * a->incy) +
					     bl_load(a->y, type, y + i * a->incy) * bl_load(a->x, type, x + j * a->incx);

			bl_store(a->A, type, j * a->lda + i, bl_load(a->A, type, j * a->lda + i) + alpha * sum);
		}
	}
}

/* Element (i, j) of op(A). */
static double complex turned(const void *data, int type, int64_t ld, int64_t op, int64_t i, int64_t j)
{
	double complex value = bl_load(data, type, op == BL_OP_N ? j * ld + i : i * ld + j);

	return op == BL_OP_C ? conj(value) : value;
}

/* C may be A or B where that is not transposed. */
void run_geam(const struct call *c)
{
	const struct args_geam *a = (const void *)c->args;
	int type = c->function->element;
	double complex alpha = bl_load(a->alpha, type, 0), beta = bl_load(a->beta, type, 0);

	for (int64_t j = 0; j < a->n; j++) {
		for (int64_t i = 0; i < a->m; i++) {
			double complex sum = 0;

			if (alpha != 0)
				sum += alpha * turned(a->A, type, a->lda, a->transa, i, j);
			if (beta != 0)
				sum += beta * turned(a->B, type, a->ldb, a->transb, i, j);
			bl_store(a->C, type, j * a->ldc + i, sum);
		}
	}
}

/* Side 0 is left: C = diag(x) * A. */
void run_dgmm(const struct call *c)
{
	const struct args_dgmm *a = (const void *)c->args;
	int type = c->function->element;
	int64_t n = a->mode ? a->n : a->m, start = a->incx < 0 ? (1 - n) * a->incx : 0;

	for (int64_t j = 0; j < a->n; j++)
		for (int64_t i = 0; i < a->m; i++)
			bl_store(a->C, type, j * a->ldc + i,
				 bl_load(a->A, type, j * a->lda + i) *
					 bl_load(a->x, type, start + (a->mode ? j : i) * a->incx));
}

/* Calls for each element of a triangle in the order of the packed form. */
static void copy_triangle(int64_t n, int64_t uplo, int type, char *packed, char *full, int64_t ld, bool to_full)
{
	int64_t at = 0;

	for (int64_t j = 0; j < n; j++) {
		int64_t from = uplo == BL_FILL_UPPER ? 0 : j, to = uplo == BL_FILL_UPPER ? j + 1 : n;

		for (int64_t i = from; i < to; i++, at++) {
			if (to_full)
				bl_store(full, type, j * ld + i, bl_load(packed, type, at));
			else
				bl_store(packed, type, at, bl_load(full, type, j * ld + i));
		}
	}
}

void run_tpttr(const struct call *c)
{
	const struct args_tpttr *a = (const void *)c->args;

	copy_triangle(a->n, a->uplo, c->function->element, a->AP, a->A, a->lda, true);
}

void run_trttp(const struct call *c)
{
	const struct args_trttp *a = (const void *)c->args;

	copy_triangle(a->n, a->uplo, c->function->element, a->AP, a->A, a->lda, false);
}
