/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the library beside calculating: versions, names of errors, callbacks. */
#include <stdio.h>

#include "dnn.h"

/* What the library is here for where no host says more. */
enum { OWN_VERSION = 92400 };

DNN_API size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void)
{
	uint64_t version = math_version(VG_MATH_DNN);

	return version ? (size_t)version : OWN_VERSION;
}

/* 0: the newest device, 1: the runtime that it was built with. */
static size_t ask_version(int which)
{
	uint64_t values[2] = { 0 };
	struct math_request request = { .handle = dnn_any_id(NULL), .function = DNN_VERSIONS, .wait = MATH_ASK, .values = values,
					.room = sizeof(values) };

	if (!request.handle)
		return 0;
	return math_channel()->call(&request) || request.status ? 0 : (size_t)values[which];
}

DNN_API size_t cudnnGetMaxDeviceVersion(void);
size_t cudnnGetMaxDeviceVersion(void)
{
	return ask_version(0);
}

DNN_API size_t cudnnGetCudartVersion(void);
size_t cudnnGetCudartVersion(void)
{
	return ask_version(1);
}

DNN_API int cudnnGetProperty(int type, int *value);
int cudnnGetProperty(int type, int *value)
{
	size_t version = cudnnGetVersion();

	if (!value)
		return DNN_BAD_PARAM;
	*value = 0;
	if (type < 0 || type > 2)
		return DNN_BAD_PARAM;
	*value = (int)(type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100);
	return DNN_OK;
}

/* ---- errors */

#define NAME(status, name) { status, "CUDNN_STATUS_" name }

static const struct {
	int status;
	const char *name;
} statuses[] = {
	NAME(0, "SUCCESS"), NAME(1001, "NOT_INITIALIZED"), NAME(1002, "SUBLIBRARY_VERSION_MISMATCH"),
	NAME(1003, "SERIALIZATION_VERSION_MISMATCH"), NAME(1004, "DEPRECATED"), NAME(1005, "LICENSE_ERROR"),
	NAME(1006, "RUNTIME_IN_PROGRESS"), NAME(1007, "RUNTIME_FP_OVERFLOW"), NAME(1008, "SUBLIBRARY_LOADING_FAILED"),
	NAME(2000, "BAD_PARAM"), NAME(2001, "INVALID_VALUE"), NAME(2002, "BAD_PARAM_NULL_POINTER"),
	NAME(2003, "BAD_PARAM_MISALIGNED_POINTER"), NAME(2004, "BAD_PARAM_NOT_FINALIZED"), NAME(2005, "BAD_PARAM_OUT_OF_BOUND"),
	NAME(2006, "BAD_PARAM_SIZE_INSUFFICIENT"), NAME(2007, "BAD_PARAM_STREAM_MISMATCH"),
	NAME(2008, "BAD_PARAM_SHAPE_MISMATCH"), NAME(2009, "BAD_PARAM_DUPLICATED_ENTRIES"),
	NAME(2010, "BAD_PARAM_ATTRIBUTE_TYPE"), NAME(2011, "BAD_PARAM_CUDA_GRAPH_MISMATCH"),
	NAME(2012, "BAD_PARAM_DESCRIPTOR_TYPE"), NAME(3000, "NOT_SUPPORTED"), NAME(3001, "NOT_SUPPORTED_GRAPH_PATTERN"),
	NAME(3002, "NOT_SUPPORTED_SHAPE"), NAME(3003, "NOT_SUPPORTED_DATA_TYPE"), NAME(3004, "NOT_SUPPORTED_LAYOUT"),
	NAME(3005, "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER"), NAME(3006, "NOT_SUPPORTED_INCOMPATIBLE_CUDART"),
	NAME(3007, "NOT_SUPPORTED_ARCH_MISMATCH"), NAME(3008, "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"),
	NAME(3009, "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"), NAME(3010, "NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT"),
	NAME(3011, "NOT_SUPPORTED_PADDING"), NAME(3012, "NOT_SUPPORTED_BAD_LAUNCH_PARAM"),
	NAME(3013, "NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API"), NAME(3014, "NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE"),
	NAME(4000, "INTERNAL_ERROR"), NAME(4001, "INTERNAL_ERROR_COMPILATION_FAILED"),
	NAME(4002, "INTERNAL_ERROR_UNEXPECTED_VALUE"), NAME(4003, "INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
	NAME(4004, "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), NAME(4005, "INTERNAL_ERROR_BAD_LAUNCH_PARAM"),
	NAME(4006, "INTERNAL_ERROR_TEXTURE_CREATION_FAILED"), NAME(5000, "EXECUTION_FAILED"),
	NAME(5001, "EXECUTION_FAILED_CUDA_DRIVER"), NAME(5002, "EXECUTION_FAILED_CUBLAS"),
	NAME(5003, "EXECUTION_FAILED_CUDART"), NAME(5004, "EXECUTION_FAILED_CURAND"),
};

DNN_API const char *cudnnGetErrorString(int status);
const char *cudnnGetErrorString(int status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "CUDNN_UNKNOWN_STATUS";
}

/* What was refused here. The host's library has reasons of its own, which stay there. */
DNN_API void cudnnGetLastErrorString(char *message, size_t room);
void cudnnGetLastErrorString(char *message, size_t room)
{
	if (message && room)
		snprintf(message, room, "%s", dnn_last_name() ? dnn_last_name() : "");
}

/* What fails after a call was posted is an error of the next CUDA call that waits. */
DNN_API int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag);
int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag)
{
	(void)tag;
	if (!dnn_handle(handle) || !status || mode < 0 || mode > 2)
		return DNN_BAD_PARAM;
	*status = DNN_OK;
	return DNN_OK;
}

/* ---- parts of the library are of one version, as they are one library */

#define CHECKS(name)                                  \
	DNN_API int cudnn##name##VersionCheck(void);    \
	int cudnn##name##VersionCheck(void)             \
	{                                             \
		return DNN_OK;                        \
	}
CHECKS(Graph)
CHECKS(Ops)
CHECKS(Cnn)

/* ---- callbacks: nothing is logged here, as the calls are the host's */

static struct {
	unsigned int mask;
	void *data, *function;
} callback;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

DNN_API int cudnnSetCallback(unsigned int mask, void *data, void *function);
int cudnnSetCallback(unsigned int mask, void *data, void *function)
{
	pthread_mutex_lock(&lock);
	callback.mask = mask;
	callback.data = data;
	callback.function = function;
	pthread_mutex_unlock(&lock);
	return DNN_OK;
}

DNN_API int cudnnGetCallback(unsigned int *mask, void **data, void **function);
int cudnnGetCallback(unsigned int *mask, void **data, void **function)
{
	if (!mask || !data || !function)
		return DNN_NULL_POINTER;
	pthread_mutex_lock(&lock);
	*mask = callback.mask;
	*data = callback.data;
	*function = callback.function;
	pthread_mutex_unlock(&lock);
	return DNN_OK;
}
