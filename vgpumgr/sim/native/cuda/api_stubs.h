/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the generated stubs. They leave their parameters out: the caller passes and drops them (System V ABI), so cuda.h
 * with its prototypes must not be included here.
 */
#ifndef VGPUMGR_CUDA_API_STUBS_H
#define VGPUMGR_CUDA_API_STUBS_H

#define WEAK __attribute__((weak, visibility("default")))

typedef int CUresult;
enum { CUDA_ERROR_NOT_SUPPORTED = 801 };

#endif
