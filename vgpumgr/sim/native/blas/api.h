/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of cuBLAS that this part writes by hand, in plain types. */
#ifndef VGPUMGR_SIM_BLAS_API_H
#define VGPUMGR_SIM_BLAS_API_H

#include "blas.h"

BL_EXPORT int cublasCreate_v2(void **handle);
BL_EXPORT int cublasDestroy_v2(void *handle);
BL_EXPORT int cublasGetVersion_v2(void *handle, int *version);
BL_EXPORT int cublasGetProperty(int type, int *value);
BL_EXPORT size_t cublasGetCudartVersion(void);
BL_EXPORT const char *cublasGetStatusName(int status);
BL_EXPORT const char *cublasGetStatusString(int status);
BL_EXPORT int cublasSetStream_v2(void *handle, void *stream);
BL_EXPORT int cublasGetStream_v2(void *handle, void **stream);
BL_EXPORT int cublasSetWorkspace_v2(void *handle, void *workspace, size_t bytes);
BL_EXPORT int cublasSetPointerMode_v2(void *handle, int mode);
BL_EXPORT int cublasGetPointerMode_v2(void *handle, int *mode);
BL_EXPORT int cublasSetAtomicsMode(void *handle, int mode);
BL_EXPORT int cublasGetAtomicsMode(void *handle, int *mode);
BL_EXPORT int cublasSetMathMode(void *handle, int mode);
BL_EXPORT int cublasGetMathMode(void *handle, int *mode);
BL_EXPORT int cublasSetSmCountTarget(void *handle, int count);
BL_EXPORT int cublasGetSmCountTarget(void *handle, int *count);
BL_EXPORT int cublasLoggerConfigure(int on, int to_stdout, int to_stderr, const char *file);
BL_EXPORT int cublasSetLoggerCallback(void (*callback)(const char *));
BL_EXPORT int cublasGetLoggerCallback(void (**callback)(const char *));
BL_EXPORT void cublasXerbla(const char *name, int argument);

#endif
