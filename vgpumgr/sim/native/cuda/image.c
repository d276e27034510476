/* SPDX-License-Identifier: Apache-2.0 */
/* Module images: files, fat binaries, PTX text; and the JIT's options and logs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_image.h>

#include "cuda_sim.h"
#include "fatbin.h"

CUresult fatbin_to_cuda(int status)
{
	switch (status) {
	case FATBIN_OK:
		return CUDA_SUCCESS;
	case FATBIN_NO_PTX:
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	case FATBIN_NO_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_INVALID_IMAGE;
	}
}

CUresult ptx_to_cuda(enum ptx_status status)
{
	switch (status) {
	case PTX_OK:
		return CUDA_SUCCESS;
	case PTX_SYNTAX:
	case PTX_UNSUPPORTED:
		return CUDA_ERROR_INVALID_PTX;
	case PTX_UNRESOLVED:
		return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
	case PTX_NO_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case PTX_ILLEGAL_ADDRESS:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case PTX_MISALIGNED:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case PTX_ASSERT:
		return CUDA_ERROR_ASSERT;
	case PTX_BAD_LAUNCH:
		return CUDA_ERROR_INVALID_VALUE;
	case PTX_STACK_OVERFLOW:
		return CUDA_ERROR_HARDWARE_STACK_ERROR;
	case PTX_CANCELLED:
	case PTX_DEADLOCK: /* on hardware it hangs until a watchdog ends it */
		return CUDA_ERROR_LAUNCH_TIMEOUT;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

void jit_error(struct jit_log *log, const char *message)
{
	if (log && log->error && log->error_size)
		snprintf(log->error, log->error_size, "%s", message);
	log_line("module: %s", message);
}

static size_t option_size(void *value)
{
	return (size_t)(unsigned int)(uintptr_t)value;
}

CUresult jit_options(unsigned n, const CUjit_option *options, void **values, struct jit_log *log)
{
	CUresult r = cuda_check_jit_options(n, options, values);

	*log = (struct jit_log){ .error_slot = SIZE_MAX, .info_slot = SIZE_MAX };
	if (r != CUDA_SUCCESS)
		return r;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
			log->error = values[i];
		if (options[i] == CU_JIT_INFO_LOG_BUFFER)
			log->info = values[i];
		if (options[i] == CU_JIT_MAX_REGISTERS)
			log->max_registers = (unsigned)(uintptr_t)values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
			log->error_size = option_size(values[i]);
			log->error_slot = i;
		}
		if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
			log->info_size = option_size(values[i]);
			log->info_slot = i;
		}
	}
	if (log->error && log->error_size)
		log->error[0] = '\0';
	if (log->info && log->info_size)
		log->info[0] = '\0';
	return CUDA_SUCCESS;
}

/* Documented: the size options receive how much of the buffers was filled. */
void jit_finish(struct jit_log *log, void **values)
{
	if (log->error_slot != SIZE_MAX)
		values[log->error_slot] = (void *)(log->error && log->error_size ? strlen(log->error) : 0);
	if (log->info_slot != SIZE_MAX)
		values[log->info_slot] = (void *)(log->info && log->info_size ? strlen(log->info) : 0);
}

CUresult jit_apply(const struct jit_log *log, char **text, size_t *length)
{
	char pragma[sizeof("\n.pragma \"" PTX_MAX_REGISTERS "4294967295\";\n")];
	char *longer;
	int n;

	if (!log || !log->max_registers)
		return CUDA_SUCCESS;
	n = snprintf(pragma, sizeof(pragma), "\n.pragma \"" PTX_MAX_REGISTERS "%u\";\n", log->max_registers);
	longer = realloc(*text, *length + (size_t)n + 1);
	if (!longer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(longer + *length, pragma, (size_t)n + 1);
	*text = longer;
	*length += (size_t)n;
	return CUDA_SUCCESS;
}

CUresult image_text(const void *image, uint32_t cc, char **text, size_t *length, struct jit_log *log)
{
	char message[256] = "";
	size_t size;
	int status;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	image = cuda_unwrap_image(image);
	size = image ? fatbin_image_length(image, SIZE_MAX) : 0;
	if (!size) {
		jit_error(log, "the image is neither a fat binary nor an ELF file nor PTX");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	status = fatbin_find_ptx(image, size, cc, text, length, message, sizeof(message));
	if (status != FATBIN_OK)
		jit_error(log, message);
	return fatbin_to_cuda(status);
}

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* The text gets a NUL: a PTX file has none. */
CUresult image_read_file(const char *path, void **data, size_t *length)
{
	CLEANUP(close_file) FILE *f = fopen(path, "rbe");
	long size;

	if (!f)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
		return CUDA_ERROR_OPERATING_SYSTEM;
	*data = calloc(1, (size_t)size + 1);
	if (!*data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*length = (size_t)size;
	if (fread(*data, 1, *length, f) == *length)
		return CUDA_SUCCESS;
	free(*data);
	return CUDA_ERROR_OPERATING_SYSTEM;
}
