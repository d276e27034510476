/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLASLt, in plain types. */
#ifndef VGPUMGR_SIM_BLAS_LT_EXPORTS_H
#define VGPUMGR_SIM_BLAS_LT_EXPORTS_H

#include "lt.h"

BL_EXPORT int cublasLtCreate(void **handle);
BL_EXPORT int cublasLtDestroy(void *handle);
BL_EXPORT size_t cublasLtGetVersion(void);
BL_EXPORT size_t cublasLtGetCudartVersion(void);
BL_EXPORT int cublasLtGetProperty(int type, int *value);
BL_EXPORT const char *cublasLtGetStatusName(int status);
BL_EXPORT const char *cublasLtGetStatusString(int status);
BL_EXPORT int cublasLtMatrixLayoutInit_internal(void *layout, size_t size, int type, uint64_t rows, uint64_t cols,
		int64_t ld);
BL_EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
BL_EXPORT int cublasLtMatrixLayoutDestroy(void *layout);
BL_EXPORT int cublasLtMatrixLayoutSetAttribute(void *layout, int id, const void *value, size_t size);
BL_EXPORT int cublasLtMatrixLayoutGetAttribute(void *layout, int id, void *value, size_t size, size_t *written);
BL_EXPORT int cublasLtMatmulDescInit_internal(void *desc, size_t size, int compute, int scale);
BL_EXPORT int cublasLtMatmulDescCreate(void **desc, int compute, int scale);
BL_EXPORT int cublasLtMatmulDescDestroy(void *desc);
BL_EXPORT int cublasLtMatmulDescSetAttribute(void *desc, int id, const void *value, size_t size);
BL_EXPORT int cublasLtMatmulDescGetAttribute(void *desc, int id, void *value, size_t size, size_t *written);
BL_EXPORT int cublasLtMatmulPreferenceInit_internal(void *preference, size_t size);
BL_EXPORT int cublasLtMatmulPreferenceCreate(void **preference);
BL_EXPORT int cublasLtMatmulPreferenceDestroy(void *preference);
BL_EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int id, const void *value, size_t size);
BL_EXPORT int cublasLtMatmulPreferenceGetAttribute(void *preference, int id, void *value, size_t size, size_t
		*written);
BL_EXPORT int cublasLtMatrixTransformDescInit_internal(void *desc, size_t size, int scale);
BL_EXPORT int cublasLtMatrixTransformDescCreate(void **desc, int scale);
BL_EXPORT int cublasLtMatrixTransformDescDestroy(void *desc);
BL_EXPORT int cublasLtMatrixTransformDescSetAttribute(void *desc, int id, const void *value, size_t size);
BL_EXPORT int cublasLtMatrixTransformDescGetAttribute(void *desc, int id, void *value, size_t size, size_t *written);
BL_EXPORT int cublasLtHeuristicsCacheGetCapacity(size_t *capacity);
BL_EXPORT int cublasLtHeuristicsCacheSetCapacity(size_t capacity);
BL_EXPORT int cublasLtLoggerSetCallback(void *callback);
BL_EXPORT int cublasLtLoggerSetFile(void *file);
BL_EXPORT int cublasLtLoggerOpenFile(const char *file);
BL_EXPORT int cublasLtLoggerSetLevel(int level);
BL_EXPORT int cublasLtLoggerSetMask(int mask);
BL_EXPORT int cublasLtLoggerForceDisable(void);
BL_EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void
		*b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const struct lt_algo
		*algo, void *workspace, size_t workspace_bytes, CUstream stream);
BL_EXPORT int cublasLtMatrixTransform(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
		const void *beta, const void *b, void *b_layout, void *c, void *c_layout, CUstream stream);
BL_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void
		*preference, int wanted, struct lt_result *results, int *found);
BL_EXPORT int cublasLtMatmulAlgoGetIds(void *handle, int compute, int scale, int a, int b, int c, int d, int wanted,
		int *ids, int *found);
BL_EXPORT int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id, struct
		lt_algo *algo);
BL_EXPORT int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const struct
		lt_algo *algo, struct lt_result *result);
BL_EXPORT int cublasLtMatmulAlgoCapGetAttribute(const struct lt_algo *algo, int id, void *value, size_t size, size_t
		*written);
BL_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(struct lt_algo *algo, int id, const void *value, size_t size);
BL_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const struct lt_algo *algo, int id, void *value, size_t size,
		size_t *written);

#endif
