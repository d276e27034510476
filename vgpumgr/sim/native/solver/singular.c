/* SPDX-License-Identifier: Apache-2.0 */
/* Singular values and vectors. */
#include <stdlib.h>
#include <string.h>

#include "solver.h"

enum { LETTER = 1 };

struct parts {
	void *a, *s, *u, *vt;
	int lda, ldu, ldvt;
	int *info;
};

/* By LAPACK, with an area of its own behind what the caller has there. */
static void decompose(struct job *j, char left, char right, const struct parts *p)
{
	typedef void real_fn(const char *, const char *, const int *, const int *, void *, const int *, void *, void *, const int *, void *,
			     const int *, void *, const int *, int *, size_t, size_t);
	typedef void complex_fn(const char *, const char *, const int *, const int *, void *, const int *, void *, void *, const int *,
				void *, const int *, void *, const int *, void *, int *, size_t, size_t);
	int64_t size = (int64_t)bl_size(j->type), sides = j->m + (int64_t)j->n;
	int elements = (int)sv_least(70 * sides + 64, INT32_MAX);
	char *area = sv_area(j, (elements + 6 * sides) * size);

	if (!area)
		return;
	*p->info = 0;
	if (bl_is_complex(j->type))
		((complex_fn *)j->routine)(&left, &right, &j->m, &j->n, p->a, &p->lda, p->s, p->u, &p->ldu, p->vt, &p->ldvt, area, &elements,
					   area + elements * size, p->info, LETTER, LETTER);
	else
		((real_fn *)j->routine)(&left, &right, &j->m, &j->n, p->a, &p->lda, p->s, p->u, &p->ldu, p->vt, &p->ldvt, area, &elements,
					p->info, LETTER, LETTER);
	free(area);
}

static void run_gesvd(struct job *j)
{
	struct parts p = { j->a, j->w, j->u, j->v, j->lda, j->ldu, j->ldv, j->info };

	*j->info = 0;
	if (j->m && j->n)
		decompose(j, j->left, j->right, &p);
}

static bool is_choice(int job)
{
	return job == 'A' || job == 'S' || job == 'O' || job == 'N';
}

/* Of matrices that are not wider than high, as documented. */
int sv_gesvd(void *handle, int type, int jobu, int jobvt, int64_t m, int64_t n, void *a, int64_t lda, void *s, void *u, int64_t ldu, void *vt,
	     int64_t ldvt, const void *area, int64_t bytes, int *info)
{
	struct job j;
	int status = sv_begin(handle, type, "gesvd_", &j);
	bool with_u = jobu == 'A' || jobu == 'S', with_v = jobvt == 'A' || jobvt == 'S';

	if (status != SV_SUCCESS)
		return status;
	if (!is_choice(jobu) || !is_choice(jobvt) || (jobu == 'O' && jobvt == 'O') || !sv_is_size(m) || !sv_is_size(n) || m < n ||
	    sv_short(lda, m) || sv_short(ldu, with_u ? m : 1) || sv_short(ldvt, with_v ? n : 1) ||
	    bytes < sv_elements(m, n) * (int64_t)bl_size(type))
		return SV_INVALID_VALUE;
	j.left = (char)jobu;
	j.right = (char)jobvt;
	j.m = (int)m;
	j.n = (int)n;
	j.a = a;
	j.lda = (int)lda;
	j.w = s;
	j.u = u;
	j.ldu = (int)ldu;
	j.v = vt;
	j.ldv = (int)ldvt;
	j.info = info;
	sv_matrix(&j, a, m, n, lda);
	sv_span(&j, s, n * (int64_t)bl_size(sv_real(type)));
	if (with_u)
		sv_matrix(&j, u, m, jobu == 'A' ? m : n, ldu);
	if (with_v)
		sv_matrix(&j, vt, n, n, ldvt);
	sv_span(&j, area, bytes);
	sv_span(&j, info, sizeof *info);
	j.compute = run_gesvd;
	return sv_post(handle, &j);
}

/* ---- the Jacobi method's functions: V instead of its conjugate transpose */

static void transpose(const struct job *j, char *v, const char *vt, int rows)
{
	for (int64_t k = 0; k < rows; k++)
		for (int64_t i = 0; i < j->n; i++)
			bl_store(v, j->type, k * j->ldv + i, conj(bl_load(vt, j->type, i * rows + k)));
}

static void run_gesvdj(struct job *j)
{
	int64_t size = (int64_t)bl_size(j->type), least = sv_least(j->m, j->n), real = (int64_t)bl_size(sv_real(j->type));
	int columns = j->econ ? (int)least : j->m, rows = j->econ ? (int)least : j->n;
	char choice = j->right == 'N' ? 'N' : j->econ ? 'S' : 'A', *vt;

	for (int i = 0; i < j->batch; i++)
		j->info[i] = 0;
	vt = least ? sv_area(j, (int64_t)j->n * rows * size) : NULL;
	for (int64_t i = 0; vt && i < j->batch; i++) {
		struct parts p = { (char *)j->a + i * j->lda * j->n * size, (char *)j->w + i * least * real,
				   (char *)j->u + i * j->ldu * columns * size, vt, j->lda, j->ldu, rows, &j->info[i] };

		decompose(j, choice, choice, &p);
		if (choice != 'N')
			transpose(j, (char *)j->v + i * j->ldv * rows * size, vt, rows);
	}
	free(vt);
}

int sv_gesvdj(void *handle, int type, int vectors, int econ, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, int ldv,
	      const void *area, int64_t bytes, int *info, struct sv_object *object, int batch, bool batched)
{
	struct job j;
	int status = sv_begin(handle, type, "gesvd_", &j);
	int64_t least = sv_least(m, n);

	if (status != SV_SUCCESS)
		return status;
	if (!object || vectors < 0 || vectors > 1 || m < 0 || n < 0 || batch < 0 || (batched && (m > SV_BATCHED || n > SV_BATCHED)) ||
	    sv_short(lda, m) || sv_short(ldu, vectors ? m : 1) || sv_short(ldv, vectors ? n : 1) ||
	    bytes < sv_elements(m, n) * (int64_t)bl_size(type))
		return SV_INVALID_VALUE;
	j.right = "NV"[vectors];
	j.econ = econ != 0;
	j.m = m;
	j.n = n;
	j.a = a;
	j.lda = lda;
	j.w = s;
	j.u = u;
	j.ldu = ldu;
	j.v = v;
	j.ldv = ldv;
	j.batch = batch;
	j.info = info;
	if (batch) {
		sv_matrix(&j, a, m, (int64_t)n * batch, lda);
		sv_matrix(&j, vectors ? u : NULL, vectors ? m : 0, (econ ? least : m) * batch, ldu);
		sv_matrix(&j, vectors ? v : NULL, vectors ? n : 0, (econ ? least : n) * batch, ldv);
	}
	sv_span(&j, s, least * batch * (int64_t)bl_size(sv_real(type)));
	sv_span(&j, area, bytes);
	sv_span(&j, info, batch * (int64_t)sizeof *info);
	j.compute = run_gesvdj;
	sv_use_object(object);
	return sv_post(handle, &j);
}
