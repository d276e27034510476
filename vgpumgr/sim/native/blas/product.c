/* SPDX-License-Identifier: Apache-2.0 */
/* Products: operands are converted to a type that OpenBLAS computes in, the result is rounded once. */
#include <stdlib.h>

#include "product.h"

int bl_product_base(const struct product *p)
{
	int a = bl_base(p->a_type), b = bl_base(p->b_type), c = bl_base(p->c_type);
	bool doubles = a == BL_R_64F || a == BL_C_64F || b == BL_R_64F || b == BL_C_64F || c == BL_R_64F || c == BL_C_64F;

	if (bl_is_complex(a) || bl_is_complex(b) || bl_is_complex(c))
		return doubles ? BL_C_64F : BL_C_32F;
	return doubles ? BL_R_64F : BL_R_32F;
}

/* A matrix in the type of the computation: itself, or a copy that is to be freed. */
struct borrowed {
	void *data, *copy;
	int ld;
};

static bool borrow(struct borrowed *out, int base, const void *data, int type, int64_t ld, int64_t rows, int64_t cols,
		   bool read)
{
	*out = (struct borrowed){ (void *)data, NULL, (int)ld };
	if (type == base)
		return true;
	out->ld = rows > 1 ? (int)rows : 1;
	out->copy = malloc((size_t)out->ld * (size_t)(cols > 1 ? cols : 1) * bl_size(base));
	out->data = out->copy;
	if (out->copy && read)
		bl_convert(out->copy, base, out->ld, data, type, ld, rows, cols);
	return out->copy;
}

static void multiply(const struct product *p, int base, struct borrowed *a, struct borrowed *b, struct borrowed *c)
{
	void (*gemm)(const char *, const char *, const int *, const int *, const int *, const void *, const void *,
		     const int *, const void *, const int *, const void *, void *, const int *);
	const char *ops = "NTC";
	int m = (int)p->m, n = (int)p->n, k = p->alpha != 0 ? (int)p->k : 0; /* see is_product_of_nothing() */
	double complex alpha, beta;

	bl_store(&alpha, base, 0, p->alpha);
	bl_store(&beta, base, 0, p->beta);
	*(void **)&gemm = bl_typed_routine(base, "gemm_");
	gemm(&ops[p->op_a], &ops[p->op_b], &m, &n, &k, &alpha, a->data, &a->ld, b->data, &b->ld, &beta, c->data, &c->ld);
}

bool bl_product(const struct product *p)
{
	int base = bl_product_base(p);
	struct borrowed a = { 0 }, b = { 0 }, c = { 0 };
	bool read = p->alpha != 0, good;

	if (p->m <= 0 || p->n <= 0)
		return true;
	good = borrow(&a, base, p->a, p->a_type, p->lda, p->op_a ? p->k : p->m, p->op_a ? p->m : p->k, read) &&
	       borrow(&b, base, p->b, p->b_type, p->ldb, p->op_b ? p->n : p->k, p->op_b ? p->k : p->n, read) &&
	       borrow(&c, base, p->c, p->c_type, p->ldc, p->m, p->n, p->beta != 0);
	if (good) {
		multiply(p, base, &a, &b, &c);
		if (c.copy)
			bl_convert(p->c, p->c_type, p->ldc, c.copy, base, c.ld, p->m, p->n);
	}
	free(a.copy);
	free(b.copy);
	free(c.copy);
	return good;
}
