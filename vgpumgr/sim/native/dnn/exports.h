/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuDNN, in plain types. */
#ifndef VGPUMGR_SIM_DNN_EXPORTS_H
#define VGPUMGR_SIM_DNN_EXPORTS_H

#include "dnn.h"

/* 9.24.0 */
enum { DN_VERSION = 92400 };

DN_EXPORT size_t cudnnGetVersion(void);
DN_EXPORT size_t cudnnGetCudartVersion(void);
DN_EXPORT size_t cudnnGetMaxDeviceVersion(void);
DN_EXPORT int cudnnGetProperty(int type, int *value);
DN_EXPORT const char *cudnnGetErrorString(int status);
DN_EXPORT void cudnnGetLastErrorString(char *message, size_t bytes);
DN_EXPORT int cudnnCreate(void **handle);
DN_EXPORT int cudnnDestroy(void *handle);
DN_EXPORT int cudnnSetStream(void *handle, void *stream);
DN_EXPORT int cudnnGetStream(void *handle, void **stream);
DN_EXPORT int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag);

DN_EXPORT int cudnnBackendCreateDescriptor(int type, void **descriptor);
DN_EXPORT int cudnnBackendDestroyDescriptor(void *descriptor);
DN_EXPORT int cudnnBackendInitialize(void *descriptor);
DN_EXPORT int cudnnBackendFinalize(void *descriptor);
DN_EXPORT int cudnnBackendSetAttribute(void *descriptor, int id, int type, int64_t count, const void *values);
DN_EXPORT int cudnnBackendGetAttribute(void *descriptor, int id, int type, int64_t wanted, int64_t *count, void *values);
DN_EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack);
DN_EXPORT int cudnnGetExecutionPlanWorkspaceSize(void *handle, void *plan, void *pack, size_t *bytes);

#endif
