/* SPDX-License-Identifier: Apache-2.0 */
/* Error codes: the driver's to the runtime's, each thread's last error, names and texts. */
#include <string.h>

#include "runtime.h"

/* From the header of this version, so that a code is known exactly if that header has it. */
static const struct {
	cudaError_t code;
	const char *name, *text;
} errors[] = {
#include "errors.inc"
};

static __thread cudaError_t last_error;

static int find(cudaError_t code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

cudaError_t rt_error(CUresult result)
{
	if (result == CUDA_SUCCESS)
		return cudaSuccess;
	return find((cudaError_t)result) >= 0 ? (cudaError_t)result : cudaErrorUnknown;
}

/* Errors after which the context, says the manual, only repeats them: reading one does not clear it. */
static bool sticky(cudaError_t error)
{
	switch (error) {
	case cudaErrorECCUncorrectable:
	case cudaErrorNvlinkUncorrectable:
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchTimeout:
	case cudaErrorAssert:
	case cudaErrorHardwareStackError:
	case cudaErrorIllegalInstruction:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorInvalidPc:
	case cudaErrorLaunchFailure:
		return true;
	default:
		return false;
	}
}

cudaError_t rt_done(cudaError_t error)
{
	if (error != cudaSuccess)
		last_error = error;
	return error;
}

void rt_forget_error(void)
{
	last_error = cudaSuccess;
}

API cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	if (!sticky(error))
		last_error = cudaSuccess;
	return error;
}

API cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

API const char *cudaGetErrorName(cudaError_t error)
{
	int i = find(error);

	return i < 0 ? "unrecognized error code" : errors[i].name;
}

/* The driver's own text for a code that the driver knows: users search for that one. */
static const char *driver_text(cudaError_t error)
{
	const char *text = NULL;
	bool loaded;

	rt_lock();
	loaded = driver_load() == 0;
	rt_unlock();
	if (!loaded || CU(cuGetErrorString, (CUresult)error, &text) != CUDA_SUCCESS)
		return NULL;
	return text;
}

API const char *cudaGetErrorString(cudaError_t error)
{
	int i = find(error);
	const char *text;

	if (i < 0)
		return "unrecognized error code";
	text = driver_text(error);
	return text ? text : errors[i].text;
}

/* What a name answers that is exported but not implemented (the generated stubs). */
cudaError_t cudart_unsupported(const char *name, atomic_flag *said)
{
	driver_call_unsupported(name, said);
	return rt_done(cudaErrorNotSupported);
}

#if CUDART_VERSION >= 13000
/* The driver's log can be read without a device, so nothing is initialised for it. */
static cudaError_t log_done(CUresult result)
{
	return rt_done(rt_error(result));
}

static bool has_log(void)
{
	bool has;

	rt_lock();
	has = driver_load() == 0;
	rt_unlock();
	return has;
}

#define LOG_CALL(name, ...) log_done(has_log() ? CU(name, __VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

API cudaError_t cudaLogsRegisterCallback(cudaLogsCallback_t callbackFunc, void *userData, cudaLogsCallbackHandle *callback_out)
{
	/* levels have the same numbers */
	return LOG_CALL(cuLogsRegisterCallback, (CUlogsCallback)(void *)callbackFunc, userData, callback_out);
}

API cudaError_t cudaLogsUnregisterCallback(cudaLogsCallbackHandle callback)
{
	return LOG_CALL(cuLogsUnregisterCallback, callback);
}

API cudaError_t cudaLogsCurrent(cudaLogIterator *iterator_out, unsigned int flags)
{
	return LOG_CALL(cuLogsCurrent, iterator_out, flags);
}

API cudaError_t cudaLogsDumpToFile(cudaLogIterator *iterator, const char *pathToFile, unsigned int flags)
{
	return LOG_CALL(cuLogsDumpToFile, iterator, pathToFile, flags);
}

API cudaError_t cudaLogsDumpToMemory(cudaLogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	return LOG_CALL(cuLogsDumpToMemory, iterator, buffer, size, flags);
}
#endif
