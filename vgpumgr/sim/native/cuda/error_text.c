/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of CUresult values. Names come from cuda.h; a text that is not listed is made of the name. */
#include <ctype.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "api_tables.h"

static const struct api_error texts[] = {
	{ CUDA_SUCCESS, "no error" },
	{ CUDA_ERROR_INVALID_VALUE, "invalid argument" },
	{ CUDA_ERROR_NOT_INITIALIZED, "initialization error" },
	{ CUDA_ERROR_DEINITIALIZED, "driver shutting down" },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable" },
	{ CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected" },
	{ CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal" },
	{ CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid" },
	{ CUDA_ERROR_INVALID_CONTEXT, "invalid device context" },
	{ CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device" },
	{ CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed" },
	{ CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain." },
	{ CUDA_ERROR_INVALID_HANDLE, "invalid resource handle" },
	{ CUDA_ERROR_NOT_FOUND, "named symbol not found" },
	{ CUDA_ERROR_NOT_READY, "device not ready" },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered" },
	{ CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch" },
	{ CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated" },
	{ CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed" },
	{ CUDA_ERROR_ASSERT, "device-side assert triggered" },
	{ CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped" },
	{ CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region" },
	{ CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered" },
	{ CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address" },
	{ CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure" },
	{ CUDA_ERROR_NOT_PERMITTED, "operation not permitted" },
	{ CUDA_ERROR_NOT_SUPPORTED, "operation not supported" },
	{ CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process" },
	{ CUDA_ERROR_UNKNOWN, "unknown error" },
};

enum { TEXT_SIZE = 64, MAX_ERRORS = 160 };
static char made[MAX_ERRORS][TEXT_SIZE];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* CUDA_ERROR_OUT_OF_MEMORY -> "out of memory" */
static void make_text(char *out, const char *name)
{
	static const char prefix[] = "CUDA_ERROR_";
	size_t i = 0;

	if (!strncmp(name, prefix, sizeof(prefix) - 1))
		name += sizeof(prefix) - 1;
	for (; name[i] && i < TEXT_SIZE - 1; i++)
		out[i] = name[i] == '_' ? ' ' : (char)tolower((unsigned char)name[i]);
}

static void make_texts(void)
{
	for (size_t i = 0; i < n_api_errors && i < MAX_ERRORS; i++)
		make_text(made[i], api_errors[i].name);
}

static size_t find(CUresult error)
{
	for (size_t i = 0; i < n_api_errors; i++) {
		if (api_errors[i].value == (int)error)
			return i;
	}
	return SIZE_MAX;
}

CUresult cuGetErrorName(CUresult error, const char **out)
{
	size_t i = find(error);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = i == SIZE_MAX ? NULL : api_errors[i].name;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	size_t i = find(error);

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	if (i >= MAX_ERRORS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_once(&once, make_texts);
	*out = made[i];
	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
		if (texts[k].value == (int)error)
			*out = texts[k].name;
	}
	return CUDA_SUCCESS;
}
