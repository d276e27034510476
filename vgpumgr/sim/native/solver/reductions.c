/* SPDX-License-Identifier: Apache-2.0 */
/* Generalised eigenproblems, reductions to tridiagonal and bidiagonal matrices, and products and inverses of factors. */
#include <stdlib.h>

#include "solver.h"

enum { LETTER = 1 };

/* ---- what all have: an area of the caller's that is large enough, and a place for the result */

static int add_area(struct job *j, const void *area, int64_t bytes, int64_t elements, int *info)
{
	if (!info)
		return SV_INVALID_VALUE;
	j->info = info;
	sv_span(j, info, sizeof *info);
	return sv_add_area(j, area, bytes, elements);
}

static int begin_triangle(void *handle, int type, const char *routine, int uplo, int64_t n, void *a, int64_t lda, struct job *j)
{
	int status = sv_begin_square(handle, type, routine, uplo, n, a, lda, j);

	if (status == SV_SUCCESS)
		sv_matrix(j, a, n, n, lda);
	return status;
}

/* ---- generalised eigenproblems of symmetric and Hermitian matrices */

static void run_sygvd(struct job *j)
{
	typedef void real_fn(const int *, const char *, const char *, const int *, void *, const int *, void *, const int *, void *, void *,
			     const int *, int *, const int *, int *, size_t, size_t);
	typedef void complex_fn(const int *, const char *, const char *, const int *, void *, const int *, void *, const int *, void *,
				void *, const int *, void *, const int *, int *, const int *, int *, size_t, size_t);
	int64_t n = j->n, size = (int64_t)bl_size(j->type), real = (int64_t)bl_size(sv_real(j->type));
	/* the most that LAPACK takes of each kind */
	int elements = (int)sv_most_elements(n), reals = (int)(2 * n * n + 5 * n + 64), integers = (int)(5 * n + 16);
	char *area = sv_area(j, elements * size + reals * real + integers * (int64_t)sizeof(int)), *more;
	int *numbers;

	if (!area)
		return;
	more = area + elements * size;
	numbers = (int *)(more + reals * real);
	*j->info = 0;
	if (n && bl_is_complex(j->type))
		((complex_fn *)j->routine)(&j->k, &j->right, &j->uplo, &j->n, j->a, &j->lda, j->b, &j->ldb, j->w, area, &elements, more,
					   &reals, numbers, &integers, j->info, LETTER, LETTER);
	else if (n)
		((real_fn *)j->routine)(&j->k, &j->right, &j->uplo, &j->n, j->a, &j->lda, j->b, &j->ldb, j->w, area, &elements, numbers,
					&integers, j->info, LETTER, LETTER);
	free(area);
}

int sv_sygvd(void *handle, int type, int problem, int vectors, int uplo, int n, void *a, int lda, void *b, int ldb, void *w,
	     const void *area, int64_t bytes, int *info, struct sv_object *object)
{
	struct job j;
	int status = begin_triangle(handle, type, bl_is_complex(type) ? "hegvd_" : "sygvd_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && (problem < 1 || problem > 3 || vectors < 0 || vectors > 1 || sv_short(ldb, n) ||
				     sv_most_elements(n) > INT32_MAX))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.k = problem;
	j.right = "NV"[vectors];
	j.b = b;
	j.ldb = ldb;
	j.w = w;
	sv_matrix(&j, b, n, n, ldb);
	sv_span(&j, w, n * (int64_t)bl_size(sv_real(type)));
	j.compute = run_sygvd;
	if (object)
		sv_use_object(object);
	return sv_post(handle, &j);
}

/* ---- to a bidiagonal or tridiagonal matrix, and back */

static void run_gebrd(struct job *j)
{
	void (*gebrd)(const int *, const int *, void *, const int *, void *, void *, void *, void *, void *, const int *, int *);
	int elements;
	void *area = sv_work(j, sv_elements(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&gebrd = j->routine;
	if (j->m && j->n)
		gebrd(&j->m, &j->n, j->a, &j->lda, j->w, j->b, j->u, j->v, area, &elements, j->info);
	free(area);
}

/* Of matrices that are not wider than high, as documented. */
int sv_gebrd(void *handle, int type, int m, int n, void *a, int lda, void *d, void *e, void *tauq, void *taup, const void *area,
	     int64_t bytes, int *info)
{
	struct job j;
	int64_t real = (int64_t)bl_size(sv_real(type)), size = (int64_t)bl_size(type);
	int status = sv_begin(handle, type, "gebrd_", &j);

	if (status == SV_SUCCESS && (m < n || n < 0 || sv_short(lda, m)))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(m, n), info);
	if (status != SV_SUCCESS)
		return status;
	j.m = m;
	j.n = n;
	j.a = a;
	j.lda = lda;
	j.w = d;
	j.b = e;
	j.u = tauq;
	j.v = taup;
	sv_matrix(&j, a, m, n, lda);
	sv_span(&j, d, n * real);
	sv_span(&j, e, (n > 1 ? n - 1 : 0) * real);
	sv_span(&j, tauq, n * size);
	sv_span(&j, taup, n * size);
	j.compute = run_gebrd;
	return sv_post(handle, &j);
}

static void run_orgbr(struct job *j)
{
	void (*orgbr)(const char *, const int *, const int *, const int *, void *, const int *, const void *, void *, const int *, int *,
		      size_t);
	int elements;
	void *area = sv_work(j, sv_elements(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&orgbr = j->routine;
	if (j->m && j->n)
		orgbr(&j->letter, &j->m, &j->n, &j->k, j->a, &j->lda, j->w, area, &elements, j->info, LETTER);
	free(area);
}

/* The left side is Q, the right one the conjugate transpose of P. */
int sv_orgbr(void *handle, int type, int side, int m, int n, int k, void *a, int lda, const void *tau, const void *area, int64_t bytes,
	     int *info)
{
	struct job j;
	int status = sv_begin(handle, type, bl_is_complex(type) ? "ungbr_" : "orgbr_", &j);
	int longer = side ? n : m, shorter = side ? m : n;

	if (status == SV_SUCCESS && (side < 0 || side > 1 || k < 0 || shorter < 0 || longer < shorter ||
				     shorter < sv_least(longer, k) || sv_short(lda, m)))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(m, n), info);
	if (status != SV_SUCCESS)
		return status;
	j.letter = "QP"[side];
	j.m = m;
	j.n = n;
	j.k = k;
	j.a = a;
	j.lda = lda;
	j.w = (void *)tau;
	sv_matrix(&j, a, m, n, lda);
	sv_span(&j, tau, sv_least(longer, k) * (int64_t)bl_size(type));
	j.compute = run_orgbr;
	return sv_post(handle, &j);
}

static void run_sytrd(struct job *j)
{
	void (*sytrd)(const char *, const int *, void *, const int *, void *, void *, void *, void *, const int *, int *, size_t);
	int elements;
	void *area = sv_work(j, sv_elements(j->n, 0), &elements);

	if (!area)
		return;
	*(void **)&sytrd = j->routine;
	if (j->n)
		sytrd(&j->uplo, &j->n, j->a, &j->lda, j->w, j->b, j->u, area, &elements, j->info, LETTER);
	free(area);
}

int sv_sytrd(void *handle, int type, int uplo, int n, void *a, int lda, void *d, void *e, void *tau, const void *area, int64_t bytes,
	     int *info)
{
	struct job j;
	int64_t real = (int64_t)bl_size(sv_real(type)), less = n > 1 ? n - 1 : 0;
	int status = begin_triangle(handle, type, bl_is_complex(type) ? "hetrd_" : "sytrd_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.w = d;
	j.b = e;
	j.u = tau;
	sv_span(&j, d, n * real);
	sv_span(&j, e, less * real);
	sv_span(&j, tau, less * (int64_t)bl_size(type));
	j.compute = run_sytrd;
	return sv_post(handle, &j);
}

static void run_orgtr(struct job *j)
{
	void (*orgtr)(const char *, const int *, void *, const int *, const void *, void *, const int *, int *, size_t);
	int elements;
	void *area = sv_work(j, sv_elements(j->n, 0), &elements);

	if (!area)
		return;
	*(void **)&orgtr = j->routine;
	if (j->n)
		orgtr(&j->uplo, &j->n, j->a, &j->lda, j->w, area, &elements, j->info, LETTER);
	free(area);
}

int sv_orgtr(void *handle, int type, int uplo, int n, void *a, int lda, const void *tau, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_triangle(handle, type, bl_is_complex(type) ? "ungtr_" : "orgtr_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.w = (void *)tau;
	sv_span(&j, tau, (n > 1 ? n - 1 : 0) * (int64_t)bl_size(type));
	j.compute = run_orgtr;
	return sv_post(handle, &j);
}

static void run_ormtr(struct job *j)
{
	void (*ormtr)(const char *, const char *, const char *, const int *, const int *, const void *, const int *, const void *, void *,
		      const int *, void *, const int *, int *, size_t, size_t, size_t);
	int elements;
	void *area = sv_work(j, sv_both_sides(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&ormtr = j->routine;
	if (j->m && j->n)
		ormtr(&j->side, &j->uplo, &j->trans, &j->m, &j->n, j->a, &j->lda, j->w, j->b, &j->ldb, area, &elements, j->info, LETTER,
		      LETTER, LETTER);
	free(area);
}

int sv_ormtr(void *handle, int type, int side, int uplo, int trans, int m, int n, void *a, int lda, const void *tau, void *c, int ldc,
	     const void *area, int64_t bytes, int *info)
{
	struct job j;
	bool pairs = bl_is_complex(type);
	int rows = side ? n : m;
	int status = begin_triangle(handle, type, pairs ? "unmtr_" : "ormtr_", uplo, rows, a, lda, &j);

	if (status == SV_SUCCESS && (side < 0 || side > 1 || trans < BL_OP_N || trans > BL_OP_C || (pairs && trans == BL_OP_T) || m < 0 ||
				     n < 0 || sv_short(ldc, m)))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(m, n), info);
	if (status != SV_SUCCESS)
		return status;
	j.side = "LR"[side];
	j.trans = trans == BL_OP_N ? 'N' : pairs ? 'C' : 'T';
	j.m = m;
	j.n = n;
	j.w = (void *)tau;
	j.b = c;
	j.ldb = ldc;
	sv_span(&j, tau, (rows > 1 ? rows - 1 : 0) * (int64_t)bl_size(type));
	sv_matrix(&j, c, m, n, ldc);
	j.compute = run_ormtr;
	return sv_post(handle, &j);
}

/* ---- of factors: the inverse from LDL, the product of a triangle with itself, a triangle's inverse, rows exchanged */

static void run_sytri(struct job *j)
{
	void (*sytri)(const char *, const int *, void *, const int *, const int *, void *, int *, size_t);
	void *area = sv_area(j, 2 * sv_elements(j->n, 0) * (int64_t)bl_size(j->type));

	if (!area)
		return;
	*j->info = 0;
	*(void **)&sytri = j->routine;
	if (j->n)
		sytri(&j->uplo, &j->n, j->a, &j->lda, j->pivots, area, j->info, LETTER);
	free(area);
}

int sv_sytri(void *handle, int type, int uplo, int n, void *a, int lda, const int *pivots, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_triangle(handle, type, "sytri_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && !pivots)
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.pivots = (void *)pivots;
	sv_span(&j, pivots, n * (int64_t)sizeof *pivots);
	j.compute = run_sytri;
	return sv_post(handle, &j);
}

static void run_lauum(struct job *j)
{
	void (*lauum)(const char *, const int *, void *, const int *, int *, size_t);

	*j->info = 0;
	*(void **)&lauum = j->routine;
	if (j->n)
		lauum(&j->uplo, &j->n, j->a, &j->lda, j->info, LETTER);
}

int sv_lauum(void *handle, int type, int uplo, int n, void *a, int lda, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_triangle(handle, type, "lauum_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.compute = run_lauum;
	return sv_post(handle, &j);
}

static void run_trtri(struct job *j)
{
	void (*trtri)(const char *, const char *, const int *, void *, const int *, int *, size_t, size_t);

	*j->info = 0;
	*(void **)&trtri = j->routine;
	if (j->n)
		trtri(&j->uplo, &j->letter, &j->n, j->a, &j->lda, j->info, LETTER, LETTER);
}

int sv_trtri(void *handle, int type, int uplo, int diag, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_triangle(handle, type, "trtri_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && (diag < 0 || diag > 1))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = add_area(&j, area, bytes, sv_elements(n, 0), info);
	if (status != SV_SUCCESS)
		return status;
	j.letter = "NU"[diag];
	j.compute = run_trtri;
	return sv_post(handle, &j);
}

/* From the end where the step is negative. */
static int pivot_of(const struct job *j, int row)
{
	int64_t step = j->nrhs > 0 ? j->nrhs : -(int64_t)j->nrhs;

	return ((const int *)j->pivots)[j->m - 1 + (row - j->m) * step];
}

static bool is_row(const struct job *j, int pivot)
{
	return pivot >= 1 && pivot <= j->lda;
}

/* Whether all rows that pivots name are there; how many the matrix has, nothing says. */
static bool reach_rows(struct job *j)
{
	int most = j->k;

	for (int row = j->m; row <= j->k; row++)
		if (is_row(j, pivot_of(j, row)) && pivot_of(j, row) > most)
			most = pivot_of(j, row);
	return bl_reach(&j->work, j->a, ((int64_t)j->lda * (j->n - 1) + most) * (int64_t)bl_size(j->type));
}

/* Pivots that name no row of the matrix are left alone: LAPACK would write elsewhere. */
static void run_laswp(struct job *j)
{
	int step = j->nrhs, from = step > 0 ? j->m : j->k, end = step > 0 ? j->k + 1 : j->m - 1, way = step > 0 ? 1 : -1;

	if (!j->n || !reach_rows(j))
		return;
	for (int row = from; row != end; row += way) {
		int pivot = pivot_of(j, row);

		if (!is_row(j, pivot) || pivot == row)
			continue;
		for (int64_t col = 0; col < j->n; col++) {
			double complex one = bl_load(j->a, j->type, col * j->lda + row - 1);

			bl_store(j->a, j->type, col * j->lda + row - 1, bl_load(j->a, j->type, col * j->lda + pivot - 1));
			bl_store(j->a, j->type, col * j->lda + pivot - 1, one);
		}
	}
}

int sv_laswp(void *handle, int type, int n, void *a, int lda, int first, int last, const int *pivots, int step)
{
	struct job j;
	int status = sv_begin(handle, type, "laswp_", &j);
	int64_t count = (int64_t)last - first;

	if (status != SV_SUCCESS)
		return status;
	if (n < 0 || first < 1 || last < first || last > lda || !step || !pivots)
		return SV_INVALID_VALUE;
	j.m = first;
	j.k = last;
	j.n = n;
	j.nrhs = step;
	j.a = a;
	j.lda = lda;
	j.pivots = (void *)pivots;
	sv_matrix(&j, a, last, n, lda);
	sv_span(&j, pivots, (first + count * (step > 0 ? step : -(int64_t)step)) * (int64_t)sizeof *pivots);
	j.compute = run_laswp;
	return sv_post(handle, &j);
}
