/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PTX_SIMD_FLOAT_H
#define PTX_SIMD_FLOAT_H

#include "ops.h"

wide_handler simd_add_f32, simd_sub_f32, simd_mul_f32, simd_div_f32, simd_fma_f32;

#endif
