/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of small systems: LU, inverses, QR and least squares by LAPACK. */
#include <stdlib.h>
#include <string.h>

#include "runs.h"

static char *entry(const char *array, int64_t i)
{
	return bl_entry(array, i);
}

static int factor(char *a, int type, int n, int ld, int *pivots)
{
	void (*getrf)(const int *, const int *, void *, const int *, int *, int *);
	int info = 0;

	if (!pivots)
		return bl_factor_plain(a, type, n, n, ld);
	*(void **)&getrf = bl_typed_routine(type, "getrf_");
	getrf(&n, &n, a, &ld, pivots, &info);
	return info;
}

static void solve(char op, int type, int n, int nrhs, const char *a, int lda, const int *pivots, char *b, int ldb)
{
	void (*getrs)(const char *, const int *, const int *, const void *, const int *, const int *, void *, const int *,
		      int *, size_t);
	int info, *none = NULL;

	if (!pivots) {
		none = malloc((size_t)(n + 1) * sizeof(int));
		for (int i = 0; none && i < n; i++)
			none[i] = i + 1;
		pivots = none;
	}
	*(void **)&getrs = bl_typed_routine(type, "getrs_");
	if (pivots)
		getrs(&op, &n, &nrhs, a, &lda, pivots, b, &ldb, &info, 1);
	free(none);
}

static void make_identity(char *a, int type, int64_t n, int64_t ld)
{
	for (int64_t j = 0; j < n; j++)
		for (int64_t i = 0; i < n; i++)
			bl_store(a, type, j * ld + i, i == j);
}

/* The first zero on the diagonal of U, counted from 1. */
static int find_zero(const char *a, int type, int64_t n, int64_t ld)
{
	for (int64_t i = 0; i < n; i++)
		if (bl_load(a, type, i * ld + i) == 0)
			return (int)i + 1;
	return 0;
}

void run_getrf(const struct call *c)
{
	const struct args_getrf *a = (const void *)c->args;
	int n = (int)a->n, *pivots = (int *)a->P, *info = (int *)a->info;

	for (int64_t i = 0; i < a->batchSize; i++)
		info[i] = n ? factor(entry(a->A, i), c->function->element, n, (int)a->lda, pivots ? pivots + i * n : NULL) : 0;
}

void run_getri(const struct call *c)
{
	const struct args_getri *a = (const void *)c->args;
	int n = (int)a->n, type = c->function->element, *pivots = (int *)a->P, *info = (int *)a->info;

	for (int64_t i = 0; i < a->batchSize; i++) {
		info[i] = n ? find_zero(entry(a->A, i), type, n, a->lda) : 0;
		if (info[i] || !n)
			continue;
		make_identity(entry(a->C, i), type, n, a->ldc);
		solve('N', type, n, n, entry(a->A, i), (int)a->lda, pivots ? pivots + i * n : NULL, entry(a->C, i),
		      (int)a->ldc);
	}
}

void run_getrs(const struct call *c)
{
	const struct args_getrs *a = (const void *)c->args;
	int n = (int)a->n, *pivots = (int *)a->devIpiv;

	for (int64_t i = 0; n && a->nrhs && i < a->batchSize; i++)
		solve("NTC"[a->trans], c->function->element, n, (int)a->nrhs, entry(a->Aarray, i), (int)a->lda,
		      pivots ? pivots + i * n : NULL, entry(a->Barray, i), (int)a->ldb);
}

static void invert(const struct call *c, int64_t i, int *pivots, char *copy)
{
	const struct args_matinv *a = (const void *)c->args;
	int n = (int)a->n, type = c->function->element, *info = (int *)a->info;

	bl_convert(copy, type, n, entry(a->A, i), type, a->lda, n, n);
	info[i] = factor(copy, type, n, n, pivots);
	if (info[i])
		return;
	make_identity(entry(a->Ainv, i), type, n, a->lda_inv);
	solve('N', type, n, n, copy, n, pivots, entry(a->Ainv, i), (int)a->lda_inv);
}

void run_matinv(const struct call *c)
{
	const struct args_matinv *a = (const void *)c->args;
	int *pivots = malloc((size_t)(a->n + 1) * sizeof *pivots);
	char *copy = malloc((size_t)(a->n * a->n + 1) * bl_size(c->function->element));

	for (int64_t i = 0; a->n && pivots && copy && i < a->batchSize; i++)
		invert(c, i, pivots, copy);
	free(pivots);
	free(copy);
}

void run_geqrf(const struct call *c)
{
	const struct args_geqrf *a = (const void *)c->args;
	void (*geqrf)(const int *, const int *, void *, const int *, void *, void *, const int *, int *);
	int m = (int)a->m, n = (int)a->n, lda = (int)a->lda, type = c->function->element, work_size = n * 64, info;
	void *work = malloc((size_t)(work_size + 1) * bl_size(type));

	*(void **)&geqrf = bl_typed_routine(type, "geqrf_");
	for (int64_t i = 0; m && n && work && i < a->batchSize; i++)
		geqrf(&m, &n, entry(a->Aarray, i), &lda, entry(a->TauArray, i), work, &work_size, &info);
	free(work);
}

void run_gels(const struct call *c)
{
	const struct args_gels *a = (const void *)c->args;
	void (*gels)(const char *, const int *, const int *, const int *, void *, const int *, void *, const int *, void *,
		     const int *, int *, size_t);
	int m = (int)a->m, n = (int)a->n, nrhs = (int)a->nrhs, lda = (int)a->lda, ldc = (int)a->ldc, info;
	int type = c->function->element, work_size = 64 * (m + n + nrhs + 1), *infos = (int *)a->devInfoArray;
	void *work = malloc((size_t)work_size * bl_size(type));

	*(void **)&gels = bl_typed_routine(type, "gels_");
	for (int64_t i = 0; work && i < a->batchSize; i++) {
		info = 0;
		if (m && n && nrhs)
			gels(&"NTC"[a->trans], &m, &n, &nrhs, entry(a->Aarray, i), &lda, entry(a->Carray, i), &ldc, work,
			     &work_size, &info, 1);
		if (infos)
			infos[i] = info;
	}
	free(work);
}
