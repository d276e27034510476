/* SPDX-License-Identifier: Apache-2.0 */
/* Which combinations of types the documentation lists for products. */
#include "blas.h"
#include "product_types.h"

int bl_scale_type(int compute, bool complex_result)
{
	switch (compute) {
	case BL_COMPUTE_16F:
	case BL_COMPUTE_16F_PEDANTIC:
		return BL_R_16F;
	case BL_COMPUTE_32F:
	case BL_COMPUTE_32F_PEDANTIC:
	case BL_COMPUTE_32F_FAST_16F:
	case BL_COMPUTE_32F_FAST_16BF:
	case BL_COMPUTE_32F_FAST_TF32:
	case BL_COMPUTE_32F_EMULATED:
		return complex_result ? BL_C_32F : BL_R_32F;
	case BL_COMPUTE_64F:
	case BL_COMPUTE_64F_PEDANTIC:
	case BL_COMPUTE_64F_EMULATED:
		return complex_result ? BL_C_64F : BL_R_64F;
	case BL_COMPUTE_32I:
	case BL_COMPUTE_32I_PEDANTIC:
		return BL_R_32I;
	default:
		return -1;
	}
}

/* Types of A and B, and of C, by the scale type; a row serves all compute types that have it. */
static const struct {
	int scale, ab, c;
} products[] = {
	{ BL_R_16F, BL_R_16F, BL_R_16F },   { BL_R_32I, BL_R_8I, BL_R_32I },	{ BL_R_32F, BL_R_32F, BL_R_32F },
	{ BL_R_32F, BL_R_16F, BL_R_16F },   { BL_R_32F, BL_R_16BF, BL_R_16BF }, { BL_R_32F, BL_R_16F, BL_R_32F },
	{ BL_R_32F, BL_R_16BF, BL_R_32F },  { BL_R_32F, BL_R_8I, BL_R_32F },	{ BL_C_32F, BL_C_32F, BL_C_32F },
	{ BL_C_32F, BL_C_8I, BL_C_32F },    { BL_R_64F, BL_R_64F, BL_R_64F },	{ BL_C_64F, BL_C_64F, BL_C_64F },
};

static bool is_fast(int compute)
{
	return compute >= BL_COMPUTE_32F_FAST_16F && compute <= BL_COMPUTE_32F_EMULATED;
}

int bl_check_gemm(int compute, int scale, int a, int b, int c)
{
	if (bl_scale_type(compute, bl_is_complex(c)) != scale || a != b)
		return BL_NOT_SUPPORTED;
	/* the fast ones take single precision, whose inputs they round */
	if (is_fast(compute) && a != BL_R_32F && a != BL_C_32F)
		return BL_NOT_SUPPORTED;
	for (size_t i = 0; i < sizeof products / sizeof *products; i++)
		if (products[i].scale == scale && products[i].ab == a && products[i].c == c)
			return BL_SUCCESS;
	return BL_NOT_SUPPORTED;
}
