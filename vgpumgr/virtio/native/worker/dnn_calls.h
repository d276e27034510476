/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VG_DNN_CALLS_H
#define VG_DNN_CALLS_H

#include <stdint.h>

/* Calls a classic function of the host's cuDNN with its arguments; by place in dnn_functions. A cudnnStatus_t. */
typedef int dnn_caller(void *function, void *handle, const uint64_t *words);
extern dnn_caller *const dnn_callers[];

#endif
