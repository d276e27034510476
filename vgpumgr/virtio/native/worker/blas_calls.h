/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VG_BLAS_CALLS_H
#define VG_BLAS_CALLS_H

#include <stdint.h>

/* Calls a function of the host's library with its arguments; by place in blas_functions. A cublasStatus_t. */
typedef int blas_caller(void *function, void *handle, const uint64_t *words);
extern blas_caller *const blas_callers[], *const solver_callers[], *const sparse_callers[];

#endif
