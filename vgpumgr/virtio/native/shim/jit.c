/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the driver's compiler and linker, and its logs. */
#include "jit.h"

#include <string.h>

#include <cuda_rules.h>

static CUresult read_option(struct shim_jit *jit, CUjit_option option, void **value)
{
	switch (option) {
	case CU_JIT_INFO_LOG_BUFFER:
		jit->info = value;
		return CUDA_SUCCESS;
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
		jit->info_bytes = value;
		return CUDA_SUCCESS;
	case CU_JIT_ERROR_LOG_BUFFER:
		jit->error = value;
		return CUDA_SUCCESS;
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		jit->error_bytes = value;
		return CUDA_SUCCESS;
	case CU_JIT_GLOBAL_SYMBOL_NAMES:
	case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
		return CUDA_ERROR_NOT_SUPPORTED; /* pointers that mean nothing to the worker */
	default:
		break;
	}
	if (jit->count == 64)
		return CUDA_ERROR_INVALID_VALUE;
	jit->words[2 * jit->count] = option;
	jit->words[2 * jit->count + 1] = (uint32_t)(uintptr_t)*value;
	jit->count++;
	return CUDA_SUCCESS;
}

void shim_jit_log(const uint8_t *log, size_t length, void **buffer, void **bytes)
{
	size_t room = buffer && bytes && *buffer ? (uintptr_t)*bytes & UINT32_MAX : 0;
	size_t n = length < room ? length : room;

	if (n) {
		memcpy(*buffer, log, n);
		((char *)*buffer)[n - 1] = 0;
	} else if (room) {
		*(char *)*buffer = 0;
	}
	if (bytes)
		*bytes = (void *)(uintptr_t)(n ? n - 1 : 0);
}

CUresult shim_jit_read(struct shim_jit *jit, unsigned int count, const CUjit_option *options, void **values)
{
	CUresult r = cuda_check_jit_options(count, options, values);

	memset(jit, 0, sizeof(*jit));
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = read_option(jit, options[i], &values[i]);
	return r;
}

uint32_t shim_jit_room(void **buffer, void **bytes)
{
	return buffer && bytes ? (uint32_t)(uintptr_t)*bytes : 0;
}
