/* SPDX-License-Identifier: Apache-2.0 */
/* Which combinations of types the documentation lists for products. */
#ifndef VGPUMGR_SIM_BLAS_PRODUCT_TYPES_H
#define VGPUMGR_SIM_BLAS_PRODUCT_TYPES_H

#include <stdbool.h>

/* Scale type of a compute type; -1: no compute type. */
int bl_scale_type(int compute, bool complex_result);
/* A status: is this product documented? */
int bl_check_gemm(int compute, int scale, int a, int b, int c);

#endif
