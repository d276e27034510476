/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of reductions.c, of each type. */
#include "solver.h"

static bool is_square(int n, int ld)
{
	return n >= 0 && !sv_short(ld, n);
}

#define BYTES(type, lwork) ((int64_t)(lwork) * (int64_t)bl_size(type))

#define GENERALISED(L, type, sy, or)                                                                                                \
	SV_API(cusolverDn##L##sy##gvd_bufferSize, void *handle, int problem, int vectors, int uplo, int n, const void *a, int lda,   \
	       const void *b, int ldb, const void *w, int *lwork)                                                                   \
	{                                                                                                                           \
		(void)problem, (void)vectors, (void)uplo, (void)a, (void)b, (void)w;                                                \
		return sv_give_size(handle, is_square(n, lda) && is_square(n, ldb), sv_elements(n, 0), lwork);                      \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##gvd, void *handle, int problem, int vectors, int uplo, int n, void *a, int lda, void *b, int ldb,  \
	       void *w, void *work, int lwork, int *info)                                                                           \
	{                                                                                                                           \
		return sv_sygvd(handle, type, problem, vectors, uplo, n, a, lda, b, ldb, w, work, BYTES(type, lwork), info, NULL);   \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##gvj_bufferSize, void *handle, int problem, int vectors, int uplo, int n, const void *a, int lda,   \
	       const void *b, int ldb, const void *w, int *lwork, void *object)                                                     \
	{                                                                                                                           \
		bool right = sv_object(object, SV_SYEVJ) && is_square(n, lda) && is_square(n, ldb);                                 \
		(void)problem, (void)vectors, (void)uplo, (void)a, (void)b, (void)w;                                                \
		return sv_give_size(handle, right, sv_elements(n, 0), lwork);                                                       \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##gvj, void *handle, int problem, int vectors, int uplo, int n, void *a, int lda, void *b, int ldb,  \
	       void *w, void *work, int lwork, int *info, void *object)                                                             \
	{                                                                                                                           \
		struct sv_object *o = sv_object(object, SV_SYEVJ);                                                                  \
		if (!o)                                                                                                             \
			return SV_INVALID_VALUE;                                                                                    \
		return sv_sygvd(handle, type, problem, vectors, uplo, n, a, lda, b, ldb, w, work, BYTES(type, lwork), info, o);      \
	}

#define REDUCED(L, type, sy, or)                                                                                                    \
	SV_API(cusolverDn##L##gebrd_bufferSize, void *handle, int m, int n, int *lwork)                                             \
	{                                                                                                                           \
		return sv_give_size(handle, n >= 0 && m >= n, sv_elements(m, n), lwork);                                            \
	}                                                                                                                           \
	SV_API(cusolverDn##L##gebrd, void *handle, int m, int n, void *a, int lda, void *d, void *e, void *tauq, void *taup,         \
	       void *work, int lwork, int *info)                                                                                    \
	{                                                                                                                           \
		return sv_gebrd(handle, type, m, n, a, lda, d, e, tauq, taup, work, BYTES(type, lwork), info);                      \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gbr_bufferSize, void *handle, int side, int m, int n, int k, const void *a, int lda,               \
	       const void *tau, int *lwork)                                                                                         \
	{                                                                                                                           \
		(void)side, (void)a, (void)tau;                                                                                     \
		return sv_give_size(handle, m >= 0 && n >= 0 && k >= 0 && !sv_short(lda, m), sv_elements(m, n), lwork);             \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gbr, void *handle, int side, int m, int n, int k, void *a, int lda, const void *tau, void *work,   \
	       int lwork, int *info)                                                                                                \
	{                                                                                                                           \
		return sv_orgbr(handle, type, side, m, n, k, a, lda, tau, work, BYTES(type, lwork), info);                          \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##trd_bufferSize, void *handle, int uplo, int n, const void *a, int lda, const void *d,              \
	       const void *e, const void *tau, int *lwork)                                                                          \
	{                                                                                                                           \
		(void)uplo, (void)a, (void)d, (void)e, (void)tau;                                                                   \
		return sv_give_size(handle, is_square(n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sy##trd, void *handle, int uplo, int n, void *a, int lda, void *d, void *e, void *tau, void *work,     \
	       int lwork, int *info)                                                                                                \
	{                                                                                                                           \
		return sv_sytrd(handle, type, uplo, n, a, lda, d, e, tau, work, BYTES(type, lwork), info);                          \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gtr_bufferSize, void *handle, int uplo, int n, const void *a, int lda, const void *tau, int *lwork) \
	{                                                                                                                           \
		(void)uplo, (void)a, (void)tau;                                                                                     \
		return sv_give_size(handle, is_square(n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##gtr, void *handle, int uplo, int n, void *a, int lda, const void *tau, void *work, int lwork,      \
	       int *info)                                                                                                           \
	{                                                                                                                           \
		return sv_orgtr(handle, type, uplo, n, a, lda, tau, work, BYTES(type, lwork), info);                                \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##mtr_bufferSize, void *handle, int side, int uplo, int trans, int m, int n, const void *a, int lda, \
	       const void *tau, const void *c, int ldc, int *lwork)                                                                 \
	{                                                                                                                           \
		(void)uplo, (void)trans, (void)a, (void)tau, (void)c;                                                               \
		return sv_give_size(handle, m >= 0 && is_square(side ? n : m, lda) && n >= 0 && !sv_short(ldc, m),                  \
				    sv_elements(m, n), lwork);                                                                      \
	}                                                                                                                           \
	SV_API(cusolverDn##L##or##mtr, void *handle, int side, int uplo, int trans, int m, int n, void *a, int lda, void *tau,       \
	       void *c, int ldc, void *work, int lwork, int *info)                                                                  \
	{                                                                                                                           \
		return sv_ormtr(handle, type, side, uplo, trans, m, n, a, lda, tau, c, ldc, work, BYTES(type, lwork), info);        \
	}

#define OF_FACTORS(L, type, sy, or)                                                                                                 \
	SV_API(cusolverDn##L##sytri_bufferSize, void *handle, int uplo, int n, void *a, int lda, const int *pivots, int *lwork)      \
	{                                                                                                                           \
		(void)uplo, (void)a, (void)pivots;                                                                                  \
		return sv_give_size(handle, is_square(n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##sytri, void *handle, int uplo, int n, void *a, int lda, const int *pivots, void *work, int lwork,      \
	       int *info)                                                                                                           \
	{                                                                                                                           \
		return sv_sytri(handle, type, uplo, n, a, lda, pivots, work, BYTES(type, lwork), info);                             \
	}                                                                                                                           \
	SV_API(cusolverDn##L##lauum_bufferSize, void *handle, int uplo, int n, void *a, int lda, int *lwork)                         \
	{                                                                                                                           \
		(void)uplo, (void)a;                                                                                                \
		return sv_give_size(handle, is_square(n, lda), sv_elements(n, 0), lwork);                                           \
	}                                                                                                                           \
	SV_API(cusolverDn##L##lauum, void *handle, int uplo, int n, void *a, int lda, void *work, int lwork, int *info)              \
	{                                                                                                                           \
		return sv_lauum(handle, type, uplo, n, a, lda, work, BYTES(type, lwork), info);                                     \
	}                                                                                                                           \
	SV_API(cusolverDn##L##laswp, void *handle, int n, void *a, int lda, int first, int last, const int *pivots, int step)        \
	{                                                                                                                           \
		return sv_laswp(handle, type, n, a, lda, first, last, pivots, step);                                                \
	}

SV_EACH(GENERALISED)
SV_EACH(REDUCED)
SV_EACH(OF_FACTORS)
