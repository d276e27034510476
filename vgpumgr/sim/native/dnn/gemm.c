/* SPDX-License-Identifier: Apache-2.0 */
/* Products: OpenBLAS's, or plain loops where it is not installed. */
#include "gemm.h"
#include "blas.h"

static double element(bool wide, const struct dn_matrix *m, int64_t i, int64_t j)
{
	int64_t at = m->transposed ? j * m->ld + i : i * m->ld + j;

	return wide ? ((const double *)m->data)[at] : ((const float *)m->data)[at];
}

static void multiply_plainly(bool wide, int64_t m, int64_t n, int64_t k, const struct dn_matrix *a, const struct dn_matrix *b,
			     void *c, int64_t ldc, bool add)
{
	struct dn_matrix old = { c, ldc, false };

	for (int64_t i = 0; i < m; i++) {
		for (int64_t j = 0; j < n; j++) {
			double sum = add ? element(wide, &old, i, j) : 0;

			for (int64_t l = 0; l < k; l++)
				sum += element(wide, a, i, l) * element(wide, b, l, j);
			if (wide)
				((double *)c)[i * ldc + j] = sum;
			else
				((float *)c)[i * ldc + j] = (float)sum;
		}
	}
}

/* BLAS has columns first: it computes the transposed product. */
void dn_gemm(bool wide, int64_t m, int64_t n, int64_t k, struct dn_matrix a, struct dn_matrix b, void *c, int64_t ldc, bool add)
{
	void (*gemm)(const char *, const char *, const int *, const int *, const int *, const void *, const void *,
		     const int *, const void *, const int *, const void *, void *, const int *);
	int rows = (int)n, cols = (int)m, depth = (int)k, lda = (int)a.ld, ldb = (int)b.ld, ld = (int)ldc;
	double one = 1, zero = 0;
	float one_f = 1, zero_f = 0;
	const void *alpha = wide ? (void *)&one : &one_f, *nothing = wide ? (void *)&zero : &zero_f;

	if (!m || !n)
		return;
	*(void **)&gemm = bl_typed_routine(wide ? BL_R_64F : BL_R_32F, "gemm_");
	if (gemm)
		gemm(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &rows, &cols, &depth, alpha, b.data, &ldb, a.data, &lda,
		     add ? alpha : nothing, c, &ld);
	else
		multiply_plainly(wide, m, n, k, &a, &b, c, ldc, add);
}
