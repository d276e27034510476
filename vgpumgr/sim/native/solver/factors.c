/* SPDX-License-Identifier: Apache-2.0 */
/* Factorisations, and what is solved with them. */
#include <stdlib.h>
#include <string.h>

#include "solver.h"

enum { LETTER = 1 }; /* Fortran's length of a character, behind the arguments */

static void add_info(struct job *j, int *info)
{
	j->info = info;
	sv_span(j, info, j->batch * (int64_t)sizeof *info);
}

static void add_right_side(struct job *j, int64_t nrhs, const void *b, int64_t ldb)
{
	j->nrhs = (int)nrhs;
	j->b = (void *)b;
	j->ldb = (int)ldb;
	sv_matrix(j, b, j->n, nrhs, ldb);
}

/* ---- Cholesky */

typedef void factor_fn(const char *, const int *, void *, const int *, int *, size_t);
typedef void solve_fn(const char *, const int *, const int *, const void *, const int *, void *, const int *, int *, size_t);

static void run_potrf(struct job *j)
{
	*j->info = 0;
	if (j->n)
		((factor_fn *)j->routine)(&j->uplo, &j->n, j->a, &j->lda, j->info, LETTER);
}

static int factor(void *handle, int type, const char *routine, int uplo, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes,
		  int *info)
{
	struct job j;
	int status = sv_begin_square(handle, type, routine, uplo, n, a, lda, &j);

	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(n, 0));
	if (status != SV_SUCCESS)
		return status;
	sv_matrix(&j, a, n, n, lda);
	add_info(&j, info);
	j.compute = run_potrf;
	return sv_post(handle, &j);
}

int sv_potrf(void *handle, int type, int uplo, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info)
{
	return factor(handle, type, "potrf_", uplo, n, a, lda, area, bytes, info);
}

int sv_potri(void *handle, int type, int uplo, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, int *info)
{
	return factor(handle, type, "potri_", uplo, n, a, lda, area, bytes, info);
}

static void run_potrs(struct job *j)
{
	*j->info = 0;
	if (j->n && j->nrhs)
		((solve_fn *)j->routine)(&j->uplo, &j->n, &j->nrhs, j->a, &j->lda, j->b, &j->ldb, j->info, LETTER);
}

int sv_potrs(void *handle, int type, int uplo, int64_t n, int64_t nrhs, const void *a, int64_t lda, void *b, int64_t ldb, int *info)
{
	struct job j;
	int status = sv_begin_square(handle, type, "potrs_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && (!sv_is_size(nrhs) || sv_short(ldb, n)))
		status = SV_INVALID_VALUE;
	if (status != SV_SUCCESS)
		return status;
	sv_matrix(&j, a, n, n, lda);
	add_right_side(&j, nrhs, b, ldb);
	add_info(&j, info);
	j.compute = run_potrs;
	return sv_post(handle, &j);
}

/* ---- Cholesky of many: arrays of addresses on the device */

static bool reach(struct job *j, const void *address, int64_t rows, int64_t cols, int64_t ld)
{
	return rows <= 0 || cols <= 0 || bl_reach(&j->work, address, (ld * (cols - 1) + rows) * (int64_t)bl_size(j->type));
}

static void run_potrf_batched(struct job *j)
{
	void *const *a = j->a;

	for (int i = 0; i < j->batch; i++) {
		if (!reach(j, a[i], j->n, j->n, j->lda))
			return;
		j->info[i] = 0;
		if (j->n)
			((factor_fn *)j->routine)(&j->uplo, &j->n, a[i], &j->lda, &j->info[i], LETTER);
	}
}

int sv_potrf_batched(void *handle, int type, int uplo, int n, void *a, int lda, int *info, int batch)
{
	struct job j;
	int status = sv_begin_square(handle, type, "potrf_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && batch < 0)
		status = SV_INVALID_VALUE;
	if (status != SV_SUCCESS)
		return status;
	j.batch = batch;
	sv_span(&j, a, batch * (int64_t)sizeof(void *));
	add_info(&j, info);
	j.compute = run_potrf_batched;
	return sv_post(handle, &j);
}

static void run_potrs_batched(struct job *j)
{
	void *const *a = j->a, *const *b = j->b;

	for (int i = 0; i < j->batch; i++) {
		if (!reach(j, a[i], j->n, j->n, j->lda) || !reach(j, b[i], j->n, j->nrhs, j->ldb))
			return;
		if (j->n)
			((solve_fn *)j->routine)(&j->uplo, &j->n, &j->nrhs, a[i], &j->lda, b[i], &j->ldb, j->info, LETTER);
	}
	*j->info = 0;
}

/* Of one right side only, as documented. */
int sv_potrs_batched(void *handle, int type, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb, int *info, int batch)
{
	struct job j;
	int status = sv_begin_square(handle, type, "potrs_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && (batch < 0 || nrhs != 1 || sv_short(ldb, n)))
		status = SV_INVALID_VALUE;
	if (status != SV_SUCCESS)
		return status;
	add_info(&j, info);
	j.batch = batch;
	j.nrhs = nrhs;
	j.b = b;
	j.ldb = ldb;
	sv_span(&j, a, batch * (int64_t)sizeof(void *));
	sv_span(&j, b, batch * (int64_t)sizeof(void *));
	j.compute = run_potrs_batched;
	return sv_post(handle, &j);
}

/* ---- LU */

/* Pivots as LAPACK has them; freed by the caller. `from`: the job's are read. */
static int *take_pivots(struct job *j, int n, bool from)
{
	int *pivots = malloc(((size_t)n + 1) * sizeof *pivots);

	for (int i = 0; pivots && from && i < n; i++)
		pivots[i] = !j->pivots ? i + 1 : j->wide ? (int)((int64_t *)j->pivots)[i] : ((int *)j->pivots)[i];
	if (!pivots)
		*j->info = -1;
	return pivots;
}

static void give_pivots(struct job *j, int n, const int *pivots)
{
	for (int i = 0; i < n; i++) {
		if (j->wide)
			((int64_t *)j->pivots)[i] = pivots[i];
		else
			((int *)j->pivots)[i] = pivots[i];
	}
}

static int64_t pivot_bytes(const struct job *j, int64_t n)
{
	return n * (int64_t)(j->wide ? sizeof(int64_t) : sizeof(int));
}

static void run_getrf(struct job *j)
{
	void (*getrf)(const int *, const int *, void *, const int *, int *, int *);
	int n = j->m < j->n ? j->m : j->n, *pivots;

	*j->info = 0;
	if (!j->pivots)
		*j->info = bl_factor_plain(j->a, j->type, j->m, j->n, j->lda);
	if (!j->pivots || !n)
		return;
	pivots = take_pivots(j, n, false);
	if (!pivots)
		return;
	*(void **)&getrf = j->routine;
	getrf(&j->m, &j->n, j->a, &j->lda, pivots, j->info);
	give_pivots(j, n, pivots);
	free(pivots);
}

/* Without pivots it exchanges nothing, as documented. */
int sv_getrf(void *handle, int type, int64_t m, int64_t n, void *a, int64_t lda, const void *area, int64_t bytes, void *pivots,
	     bool wide, int *info)
{
	struct job j;
	int status = sv_begin(handle, type, "getrf_", &j);

	if (status == SV_SUCCESS && (!sv_is_size(m) || !sv_is_size(n) || sv_short(lda, m)))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(m, n));
	if (status != SV_SUCCESS)
		return status;
	j.m = (int)m;
	j.n = (int)n;
	j.a = a;
	j.lda = (int)lda;
	j.pivots = pivots;
	j.wide = wide;
	sv_matrix(&j, a, m, n, lda);
	if (pivots)
		sv_span(&j, pivots, pivot_bytes(&j, sv_least(m, n)));
	add_info(&j, info);
	j.compute = run_getrf;
	return sv_post(handle, &j);
}

/* With pivots: `letter` says which side or how it is turned, by the routine. */
static void run_pivoted(struct job *j)
{
	void (*solve)(const char *, const int *, const int *, const void *, const int *, const int *, void *, const int *, int *, size_t);
	int *pivots = take_pivots(j, j->n, true);

	if (!pivots)
		return;
	*j->info = 0;
	*(void **)&solve = j->routine;
	if (j->n && j->nrhs)
		solve(&j->letter, &j->n, &j->nrhs, j->a, &j->lda, pivots, j->b, &j->ldb, j->info, LETTER);
	free(pivots);
}

static int solve_pivoted(void *handle, struct job *j, char letter, int64_t n, int64_t nrhs, const void *a, int64_t lda,
			 const void *pivots, bool wide, void *b, int64_t ldb, int *info)
{
	if (!sv_is_size(nrhs) || sv_short(ldb, n))
		return SV_INVALID_VALUE;
	j->letter = letter;
	j->pivots = (void *)pivots;
	j->wide = wide;
	sv_matrix(j, a, n, n, lda);
	if (pivots)
		sv_span(j, pivots, pivot_bytes(j, n));
	add_right_side(j, nrhs, b, ldb);
	add_info(j, info);
	j->compute = run_pivoted;
	return sv_post(handle, j);
}

int sv_getrs(void *handle, int type, int trans, int64_t n, int64_t nrhs, const void *a, int64_t lda, const void *pivots, bool wide,
	     void *b, int64_t ldb, int *info)
{
	struct job j;
	int status = sv_begin_square(handle, type, "getrs_", BL_FILL_LOWER, n, a, lda, &j);

	if (status == SV_SUCCESS && (trans < BL_OP_N || trans > BL_OP_C))
		status = SV_INVALID_VALUE;
	return status != SV_SUCCESS ? status :
				      solve_pivoted(handle, &j, "NTC"[trans], n, nrhs, a, lda, pivots, wide, b, ldb, info);
}

/* ---- of symmetric matrices that are not definite */

static void run_sytrf(struct job *j)
{
	void (*sytrf)(const char *, const int *, void *, const int *, int *, void *, const int *, int *, size_t);
	int elements;
	void *area = sv_work(j, sv_elements(j->n, 0), &elements);

	if (!area)
		return;
	*(void **)&sytrf = j->routine;
	if (j->n)
		sytrf(&j->uplo, &j->n, j->a, &j->lda, j->pivots, area, &elements, j->info, LETTER);
	free(area);
}

int sv_sytrf(void *handle, int type, int uplo, int n, void *a, int lda, int *pivots, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = sv_begin_square(handle, type, "sytrf_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && !pivots)
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(n, 0));
	if (status != SV_SUCCESS)
		return status;
	j.pivots = pivots;
	sv_matrix(&j, a, n, n, lda);
	sv_span(&j, pivots, pivot_bytes(&j, n));
	add_info(&j, info);
	j.compute = run_sytrf;
	return sv_post(handle, &j);
}

int sv_sytrs(void *handle, int type, int uplo, int64_t n, int64_t nrhs, const void *a, int64_t lda, const void *pivots, void *b, int64_t ldb,
	     int *info)
{
	struct job j;
	int status = sv_begin_square(handle, type, "sytrs_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && !pivots)
		status = SV_INVALID_VALUE;
	return status != SV_SUCCESS ? status : solve_pivoted(handle, &j, j.uplo, n, nrhs, a, lda, pivots, true, b, ldb, info);
}

/* ---- QR */

static int begin_reflectors(void *handle, int type, const char *routine, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
			    const void *tau, struct job *j)
{
	int status = sv_begin(handle, type, routine, j);

	if (status != SV_SUCCESS)
		return status;
	if (!sv_is_size(m) || !sv_is_size(n) || !sv_is_size(k))
		return SV_INVALID_VALUE;
	j->m = (int)m;
	j->n = (int)n;
	j->k = (int)k;
	j->a = (void *)a;
	j->lda = (int)lda;
	j->w = (void *)tau;
	sv_span(j, tau, k * (int64_t)bl_size(type));
	return SV_SUCCESS;
}

static void run_geqrf(struct job *j)
{
	void (*geqrf)(const int *, const int *, void *, const int *, void *, void *, const int *, int *);
	int elements;
	void *area = sv_work(j, sv_elements(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&geqrf = j->routine;
	if (j->m && j->n)
		geqrf(&j->m, &j->n, j->a, &j->lda, j->w, area, &elements, j->info);
	free(area);
}

int sv_geqrf(void *handle, int type, int64_t m, int64_t n, void *a, int64_t lda, void *tau, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_reflectors(handle, type, "geqrf_", m, n, sv_least(m, n), a, lda, tau, &j);

	if (status == SV_SUCCESS && sv_short(lda, m))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(m, n));
	if (status != SV_SUCCESS)
		return status;
	sv_matrix(&j, a, m, n, lda);
	add_info(&j, info);
	j.compute = run_geqrf;
	return sv_post(handle, &j);
}

static void run_orgqr(struct job *j)
{
	void (*orgqr)(const int *, const int *, const int *, void *, const int *, const void *, void *, const int *, int *);
	int elements;
	void *area = sv_work(j, sv_elements(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&orgqr = j->routine;
	if (j->m && j->n)
		orgqr(&j->m, &j->n, &j->k, j->a, &j->lda, j->w, area, &elements, j->info);
	free(area);
}

int sv_orgqr(void *handle, int type, int m, int n, int k, void *a, int lda, const void *tau, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = begin_reflectors(handle, type, bl_is_complex(type) ? "ungqr_" : "orgqr_", m, n, k, a, lda, tau, &j);

	if (status == SV_SUCCESS && (n > m || k > n || sv_short(lda, m)))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(m, n));
	if (status != SV_SUCCESS)
		return status;
	sv_matrix(&j, a, m, n, lda);
	add_info(&j, info);
	j.compute = run_orgqr;
	return sv_post(handle, &j);
}

static void run_ormqr(struct job *j)
{
	void (*ormqr)(const char *, const char *, const int *, const int *, const int *, const void *, const int *, const void *, void *,
		      const int *, void *, const int *, int *, size_t, size_t);
	int elements;
	void *area = sv_work(j, sv_both_sides(j->m, j->n), &elements);

	if (!area)
		return;
	*(void **)&ormqr = j->routine;
	if (j->m && j->n && j->k)
		ormqr(&j->side, &j->trans, &j->m, &j->n, &j->k, j->a, &j->lda, j->w, j->b, &j->ldb, area, &elements, j->info, LETTER,
		      LETTER);
	free(area);
}

int sv_ormqr(void *handle, int type, int side, int trans, int m, int n, int k, const void *a, int lda, const void *tau, void *c, int ldc,
	     const void *area, int64_t bytes, int *info)
{
	bool pairs = bl_is_complex(type);
	int rows = side == 0 ? m : n;
	struct job j;
	int status = begin_reflectors(handle, type, pairs ? "unmqr_" : "ormqr_", m, n, k, a, lda, tau, &j);

	if (status != SV_SUCCESS)
		return status;
	if (side < 0 || side > 1 || trans < BL_OP_N || trans > BL_OP_C || (pairs && trans == BL_OP_T) || k > rows ||
	    sv_short(lda, rows) || sv_short(ldc, m))
		return SV_INVALID_VALUE;
	status = sv_add_area(&j, area, bytes, sv_elements(m, n));
	if (status != SV_SUCCESS)
		return status;
	j.side = "LR"[side];
	j.trans = trans == BL_OP_N ? 'N' : pairs ? 'C' : 'T';
	j.b = c;
	j.ldb = ldc;
	sv_matrix(&j, a, rows, k, lda);
	sv_matrix(&j, c, m, n, ldc);
	add_info(&j, info);
	j.compute = run_ormqr;
	return sv_post(handle, &j);
}
