/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of each type. */
#include "solver.h"

/* An area's size is asked of the same shapes that the function takes; elements of an area are the function's. */
int sv_give_size(void *handle, bool right, int64_t elements, int *lwork)
{
	if (!sv_handle(handle))
		return SV_NOT_INITIALIZED;
	if (!right || !lwork || elements > INT32_MAX)
		return SV_INVALID_VALUE;
	*lwork = (int)elements;
	return SV_SUCCESS;
}

static bool is_matrix(int rows, int cols, int ld)
{
	return rows >= 0 && cols >= 0 && !sv_short(ld, rows);
}

#define BYTES(type, lwork) ((int64_t)(lwork) * (int64_t)bl_size(type))

#define CHOLESKY(L, type, function)                                                                                                 \
	SV_API(cusolverDn##L##function##_bufferSize, void *handle, int uplo, int n, void *a, int lda, int *lwork)                   \
	{                                                                                                                           \
		(void)a;                                                                                                            \
		return sv_give_size(handle, uplo >= 0 && uplo <= 1 && is_matrix(n, n, lda), sv_elements(n, 0), lwork);                 \
	}                                                                                                                           \
	SV_API(cusolverDn##L##function, void *handle, int uplo, int n, void *a, int lda, void *work, int lwork, int *info)          \
	{                                                                                                                           \
		return sv_##function(handle, type, uplo, n, a, lda, work, BYTES(type, lwork), info);                                \
	}

#define FACTORS(L, type, sy, or)                                                                                                    \
	CHOLESKY(L, type, potrf)                                                                                                    \
	CHOLESKY(L, type, potri)                                                                                                    \
	SV_API(cusolverDn##L##potrs, void *handle, int uplo, int n, int nrhs, const void *a, int lda, void *b, int ldb, int *info)  \
	{                                                                                                                           \
		return sv_potrs(handle, type, uplo, n, nrhs, a, lda, b, ldb, info);                                                 \
	}                                                                                                                           \
	SV_API(cusolverDn##L##potrfBatched, void *handle, int uplo, int n, void *a, int lda, int *info, int batch)                  \
	{                                                                                                                           \
		return sv_potrf_batched(handle, type, uplo, n, a, lda, info, batch);                                                \
	}                                                                                                                           \
	SV_API(cusolverDn##L##potrsBatched, void *handle, int uplo, int n, int nrhs, void *a, int lda, void *b, int ldb, int *info, \
	       int batch)                                                                                                           \
	{                                                                                                                           \
		return sv_potrs_batched(handle, type, uplo, n, nrhs, a, lda, b, ldb, info, batch);                                  \
	}                                                                                                                           \
	SV_API(cusolverDn##L##getrf_bufferSize, void *handle, int m, int n, void *a, int lda, int *lwork)                           \
	{                                                                                                                           \
		(void)a;                                                                                                            \
		return sv_give_size(handle, is_matrix(m, n, lda), sv_elements(m, n), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##getrf, void *handle, int m, int n, void *a, int lda, void *work, int *pivots, int *info)              \
	{                                                                                                                           \
		return sv_getrf(handle, type, m, n, a, lda, work, BYTES(type, sv_elements(m, n)), pivots, false, info);             \
	}                                                                                                                           \
	SV_API(cusolverDn##L##getrs, void *handle, int trans, int n, int nrhs, const void *a, int lda, const int *pivots, void *b,  \
	       int ldb, int *info)                                                                                                  \
	{                                                                                                                           \
		return sv_getrs(handle, type, trans, n, nrhs, a, lda, pivots, false, b, ldb, info);                                 \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sytrf_bufferSize, void *handle, int n, void *a, int lda, int *lwork)                                  \
	{                                                                                                                           \
		(void)a;                                                                                                            \
		return sv_give_size(handle, is_matrix(n, n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sytrf, void *handle, int uplo, int n, void *a, int lda, int *pivots, void *work, int lwork, int *info) \
	{                                                                                                                           \
		return sv_sytrf(handle, type, uplo, n, a, lda, pivots, work, BYTES(type, lwork), info);                             \
	}                                                                                                                           \
	SV_API(cusolverDn##L##geqrf_bufferSize, void *handle, int m, int n, void *a, int lda, int *lwork)                           \
	{                                                                                                                           \
		(void)a;                                                                                                            \
		return sv_give_size(handle, is_matrix(m, n, lda), sv_elements(m, n), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##geqrf, void *handle, int m, int n, void *a, int lda, void *tau, void *work, int lwork, int *info)     \
	{                                                                                                                           \
		return sv_geqrf(handle, type, m, n, a, lda, tau, work, BYTES(type, lwork), info);                                   \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gqr_bufferSize, void *handle, int m, int n, int k, const void *a, int lda, const void *tau,       \
	       int *lwork)                                                                                                          \
	{                                                                                                                           \
		(void)a, (void)tau;                                                                                                 \
		return sv_give_size(handle, is_matrix(m, n, lda) && n <= m && k >= 0 && k <= n, sv_elements(m, n), lwork);             \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gqr, void *handle, int m, int n, int k, void *a, int lda, const void *tau, void *work, int lwork, \
	       int *info)                                                                                                           \
	{                                                                                                                           \
		return sv_orgqr(handle, type, m, n, k, a, lda, tau, work, BYTES(type, lwork), info);                                \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##mqr_bufferSize, void *handle, int side, int trans, int m, int n, int k, const void *a, int lda,   \
	       const void *tau, const void *c, int ldc, int *lwork)                                                                 \
	{                                                                                                                           \
		(void)trans, (void)a, (void)tau, (void)c;                                                                           \
		return sv_give_size(handle, is_matrix(side ? n : m, k, lda) && is_matrix(m, n, ldc), sv_elements(m, n), lwork);        \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##mqr, void *handle, int side, int trans, int m, int n, int k, const void *a, int lda,              \
	       const void *tau, void *c, int ldc, void *work, int lwork, int *info)                                                 \
	{                                                                                                                           \
		return sv_ormqr(handle, type, side, trans, m, n, k, a, lda, tau, c, ldc, work, BYTES(type, lwork), info);           \
	}

#define EIGEN(L, type, sy, or)                                                                                                      \
	SV_API(cusolverDn##L##sy##evd_bufferSize, void *handle, int vectors, int uplo, int n, const void *a, int lda,               \
	       const void *w, int *lwork)                                                                                           \
	{                                                                                                                           \
		(void)vectors, (void)uplo, (void)a, (void)w;                                                                        \
		return sv_give_size(handle, is_matrix(n, n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##evd, void *handle, int vectors, int uplo, int n, void *a, int lda, void *w, void *work,           \
	       int lwork, int *info)                                                                                                \
	{                                                                                                                           \
		return sv_syevd(handle, type, vectors, uplo, n, a, lda, w, work, BYTES(type, lwork), info, NULL, 1);                \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##evj_bufferSize, void *handle, int vectors, int uplo, int n, const void *a, int lda,               \
	       const void *w, int *lwork, void *object)                                                                             \
	{                                                                                                                           \
		(void)vectors, (void)uplo, (void)a, (void)w;                                                                        \
		return sv_give_size(handle, sv_object(object, SV_SYEVJ) && is_matrix(n, n, lda), sv_elements(n, 0), lwork);            \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##evj, void *handle, int vectors, int uplo, int n, void *a, int lda, void *w, void *work,           \
	       int lwork, int *info, void *object)                                                                                  \
	{                                                                                                                           \
		struct sv_object *o = sv_object(object, SV_SYEVJ);                                                                  \
		if (!o)                                                                                                             \
			return SV_INVALID_VALUE;                                                                                    \
		return sv_syevd(handle, type, vectors, uplo, n, a, lda, w, work, BYTES(type, lwork), info, o, 1);                   \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##evjBatched_bufferSize, void *handle, int vectors, int uplo, int n, const void *a, int lda,        \
	       const void *w, int *lwork, void *object, int batch)                                                                  \
	{                                                                                                                           \
		(void)vectors, (void)uplo, (void)a, (void)w;                                                                        \
		return sv_give_size(handle, sv_object(object, SV_SYEVJ) && batch >= 0 && is_matrix(n, n, lda), sv_elements(n, 0),      \
				 lwork);                                                                                            \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##evjBatched, void *handle, int vectors, int uplo, int n, void *a, int lda, void *w, void *work,    \
	       int lwork, int *info, void *object, int batch)                                                                       \
	{                                                                                                                           \
		struct sv_object *o = sv_object(object, SV_SYEVJ);                                                                  \
		if (!o)                                                                                                             \
			return SV_INVALID_VALUE;                                                                                    \
		return sv_syevd(handle, type, vectors, uplo, n, a, lda, w, work, BYTES(type, lwork), info, o, batch);               \
	}

#define SINGULAR(L, type, sy, or)                                                                                                   \
	SV_API(cusolverDn##L##gesvd_bufferSize, void *handle, int m, int n, int *lwork)                                             \
	{                                                                                                                           \
		return sv_give_size(handle, n >= 0 && m >= n, sv_elements(m, n), lwork);                                               \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gesvd, void *handle, signed char jobu, signed char jobvt, int m, int n, void *a, int lda, void *s,    \
	       void *u, int ldu, void *vt, int ldvt, void *work, int lwork, void *rwork, int *info)                                 \
	{                                                                                                                           \
		(void)rwork;                                                                                                        \
		return sv_gesvd(handle, type, jobu, jobvt, m, n, a, lda, s, u, ldu, vt, ldvt, work, BYTES(type, lwork), info);      \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gesvdj_bufferSize, void *handle, int vectors, int econ, int m, int n, const void *a, int lda,         \
	       const void *s, const void *u, int ldu, const void *v, int ldv, int *lwork, void *object)                             \
	{                                                                                                                           \
		(void)vectors, (void)econ, (void)a, (void)s, (void)u, (void)ldu, (void)v, (void)ldv;                                \
		return sv_give_size(handle, sv_object(object, SV_GESVDJ) && is_matrix(m, n, lda), sv_elements(m, n), lwork);           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gesvdj, void *handle, int vectors, int econ, int m, int n, void *a, int lda, void *s, void *u,        \
	       int ldu, void *v, int ldv, void *work, int lwork, int *info, void *object)                                           \
	{                                                                                                                           \
		return sv_gesvdj(handle, type, vectors, econ, m, n, a, lda, s, u, ldu, v, ldv, work, BYTES(type, lwork), info,      \
				 sv_object(object, SV_GESVDJ), 1, false);                                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gesvdjBatched_bufferSize, void *handle, int vectors, int m, int n, const void *a, int lda,            \
	       const void *s, const void *u, int ldu, const void *v, int ldv, int *lwork, void *object, int batch)                  \
	{                                                                                                                           \
		bool right = sv_object(object, SV_GESVDJ) && batch >= 0 && m <= SV_BATCHED && n <= SV_BATCHED;                      \
		(void)vectors, (void)a, (void)s, (void)u, (void)ldu, (void)v, (void)ldv;                                            \
		return sv_give_size(handle, right && is_matrix(m, n, lda), sv_elements(m, n), lwork);                                  \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gesvdjBatched, void *handle, int vectors, int m, int n, void *a, int lda, void *s, void *u, int ldu,  \
	       void *v, int ldv, void *work, int lwork, int *info, void *object, int batch)                                         \
	{                                                                                                                           \
		return sv_gesvdj(handle, type, vectors, 0, m, n, a, lda, s, u, ldu, v, ldv, work, BYTES(type, lwork), info,         \
				 sv_object(object, SV_GESVDJ), batch, true);                                                        \
	}

SV_EACH(FACTORS)
SV_EACH(EIGEN)
SV_EACH(SINGULAR)
