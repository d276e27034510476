/* SPDX-License-Identifier: Apache-2.0 */
/* Eigenvalues and eigenvectors. */
#include <stdlib.h>
#include <string.h>

#include "solver.h"

enum { LETTER = 1 };

/* ---- of symmetric and Hermitian matrices, also by the Jacobi method's functions, which give the same */

static void solve(struct job *j, void *a, void *w, int *info, char *area, int elements, char *reals, int real_elements, int *integers,
		  int count)
{
	typedef void real_fn(const char *, const char *, const int *, void *, const int *, void *, void *, const int *, int *, const int *,
			     int *, size_t, size_t);
	typedef void complex_fn(const char *, const char *, const int *, void *, const int *, void *, void *, const int *, void *,
				const int *, int *, const int *, int *, size_t, size_t);

	*info = 0;
	if (bl_is_complex(j->type))
		((complex_fn *)j->routine)(&j->right, &j->uplo, &j->n, a, &j->lda, w, area, &elements, reals, &real_elements, integers,
					   &count, info, LETTER, LETTER);
	else
		((real_fn *)j->routine)(&j->right, &j->uplo, &j->n, a, &j->lda, w, area, &elements, integers, &count, info, LETTER,
					LETTER);
}

static void run_syevd(struct job *j)
{
	int64_t n = j->n, size = (int64_t)bl_size(j->type), real = (int64_t)bl_size(sv_real(j->type));
	/* the most that LAPACK takes of each kind */
	int64_t elements = sv_most_elements(n), reals = 2 * n * n + 5 * n + 64, integers = 5 * n + 16;
	int64_t bytes = elements * size + reals * real + integers * (int64_t)sizeof(int);
	char *area = sv_area(j, bytes);

	for (int i = 0; area && n && i < j->batch; i++)
		solve(j, (char *)j->a + i * (int64_t)j->lda * n * size, (char *)j->w + i * n * real, &j->info[i], area, (int)elements,
		      area + elements * size, (int)reals, (int *)(area + elements * size + reals * real), (int)integers);
	for (int i = 0; area && !n && i < j->batch; i++)
		j->info[i] = 0;
	free(area);
}

int sv_syevd(void *handle, int type, int vectors, int uplo, int64_t n, void *a, int64_t lda, void *w, const void *area, int64_t bytes,
	     int *info, struct sv_object *object, int64_t batch)
{
	struct job j;
	int status = sv_begin_square(handle, type, bl_is_complex(type) ? "heevd_" : "syevd_", uplo, n, a, lda, &j);

	if (status == SV_SUCCESS && (vectors < 0 || vectors > 1 || !sv_is_size(batch) || sv_most_elements(n) > INT32_MAX))
		status = SV_INVALID_VALUE;
	if (status == SV_SUCCESS)
		status = sv_add_area(&j, area, bytes, sv_elements(n, 0));
	if (status != SV_SUCCESS)
		return status;
	j.right = "NV"[vectors];
	j.w = w;
	j.batch = (int)batch;
	j.info = info;
	if (batch)
		sv_matrix(&j, a, n, n * batch, lda);
	sv_span(&j, w, n * batch * (int64_t)bl_size(sv_real(type)));
	sv_span(&j, info, batch * (int64_t)sizeof *info);
	j.compute = run_syevd;
	if (object)
		sv_use_object(object);
	return sv_post(handle, &j);
}

/* ---- of any matrices */

/* Of real ones the values come in two arrays. */
static void give_values(struct job *j, const char *parts)
{
	int64_t n = j->n;

	for (int64_t i = 0; i < n; i++) {
		double real = creal(bl_load(parts, j->type, i)), imaginary = creal(bl_load(parts, j->type, n + i));

		if (bl_is_complex(j->w_type)) {
			bl_store(j->w, j->w_type, i, CMPLX(real, imaginary));
		} else {
			bl_store(j->w, j->w_type, i, real);
			bl_store(j->w, j->w_type, n + i, imaginary);
		}
	}
}

static void run_geev(struct job *j)
{
	typedef void real_fn(const char *, const char *, const int *, void *, const int *, void *, void *, void *, const int *, void *,
			     const int *, void *, const int *, int *, size_t, size_t);
	typedef void complex_fn(const char *, const char *, const int *, void *, const int *, void *, void *, const int *, void *,
				const int *, void *, const int *, void *, int *, size_t, size_t);
	int64_t n = j->n, size = (int64_t)bl_size(j->type);
	int elements = (int)(34 * n + 64);
	char *area = sv_area(j, (elements + 2 * n) * size), *parts = area + elements * size;

	if (!area)
		return;
	*j->info = 0;
	if (n && bl_is_complex(j->type))
		((complex_fn *)j->routine)(&j->left, &j->right, &j->n, j->a, &j->lda, j->w, j->u, &j->ldu, j->v, &j->ldv, area, &elements,
					   parts, j->info, LETTER, LETTER);
	else if (n)
		((real_fn *)j->routine)(&j->left, &j->right, &j->n, j->a, &j->lda, parts, parts + n * size, j->u, &j->ldu, j->v, &j->ldv,
					area, &elements, j->info, LETTER, LETTER);
	if (!bl_is_complex(j->type))
		give_values(j, parts);
	free(area);
}

int sv_geev(void *handle, int type, int left, int right, int64_t n, void *a, int64_t lda, int w_type, void *w, void *vl, int64_t ldvl,
	    void *vr, int64_t ldvr, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = sv_begin(handle, type, "geev_", &j);
	bool pairs = !bl_is_complex(type) && w_type == type;

	if (status != SV_SUCCESS)
		return status;
	if (left < 0 || left > 1 || right < 0 || right > 1 || !sv_is_size(n) || sv_short(lda, n) || sv_short(ldvl, left ? n : 1) ||
	    sv_short(ldvr, right ? n : 1) || sv_real(w_type) != sv_real(type) || (bl_is_complex(type) && w_type != type) ||
	    bytes < sv_elements(n, 0) * (int64_t)bl_size(type))
		return SV_INVALID_VALUE;
	j.left = "NV"[left];
	j.right = "NV"[right];
	j.n = (int)n;
	j.a = a;
	j.lda = (int)lda;
	j.w = w;
	j.w_type = w_type;
	j.u = vl;
	j.ldu = (int)ldvl;
	j.v = vr;
	j.ldv = (int)ldvr;
	j.info = info;
	sv_matrix(&j, a, n, n, lda);
	sv_span(&j, w, n * (pairs ? 2 : 1) * (int64_t)bl_size(w_type));
	if (left)
		sv_matrix(&j, vl, n, n, ldvl);
	if (right)
		sv_matrix(&j, vr, n, n, ldvr);
	sv_span(&j, area, bytes);
	sv_span(&j, info, sizeof *info);
	j.compute = run_geev;
	return sv_post(handle, &j);
}
