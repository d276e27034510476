/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking at run time. There is no machine code here: what is linked is the inputs' PTX, joined, and what comes out as
 * cubin is that text. Each input is looked at when it is added; what is missing is found when they are joined.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_sim.h"
#include "fatbin.h"

struct linker {
	struct jit_log log;
	void **values; /* of the options: the program keeps them until the end */
	char *text;    /* of all inputs so far */
	size_t length;
	char *cubin;
};

static struct linker *find(CUlinkState state)
{
	return handle_is(state, HANDLE_LINKER) ? (struct linker *)state : NULL;
}

CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *options, void **values, CUlinkState *out)
{
	struct linker *l;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->values = values;
	r = jit_options(n, options, values, &l->log);
	drv_lock();
	if (r == CUDA_SUCCESS && handle_add(l, HANDLE_LINKER))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	drv_unlock();
	if (r != CUDA_SUCCESS)
		free(l);
	else
		*out = (CUlinkState)l;
	return r;
}

static bool join(char **text, size_t *length, const char *more, size_t more_length)
{
	char *joined = realloc(*text, *length + more_length + 2);

	if (!joined)
		return false;
	*text = joined;
	memcpy(joined + *length, more, more_length);
	*length += more_length;
	joined[(*length)++] = '\n';
	joined[*length] = '\0';
	return true;
}

/*
 * The PTX of all fat binaries in an object file of the host, or in a library of them. One that has none is left out, as
 * libcudadevrt.a is: who needs it misses its names.
 */
static CUresult read_containers(uint32_t cc, const char *data, size_t size, char **text, size_t *length)
{
	static const char magic[] = { 0x50, (char)0xed, 0x55, (char)0xba };
	const char *at = data;
	char message[256];

	*text = NULL;
	*length = 0;
	while ((at = memmem(at, size - (size_t)(at - data), magic, sizeof(magic)))) {
		size_t n, bytes = fatbin_image_length(at, size - (size_t)(at - data));
		char *one;

		if (bytes && fatbin_find_ptx(at, bytes, cc, &one, &n, message, sizeof(message)) == FATBIN_OK) {
			bool joined = join(text, length, one, n);

			free(one);
			if (!joined) {
				free(*text);
				return CUDA_ERROR_OUT_OF_MEMORY;
			}
		}
		at += bytes ? bytes : sizeof(magic);
	}
	return CUDA_SUCCESS;
}

/* The PTX of an input, for the device, or NULL where it is of machine code alone; the caller frees. */
static CUresult read_input(const struct context *ctx, CUjitInputType type, const void *data, size_t size, char **text,
			   size_t *length, struct jit_log *log)
{
	uint32_t cc = ctx->dev->info.cc_major * 10 + ctx->dev->info.cc_minor;
	char message[256] = "";
	int status;

	if (type == CU_JIT_INPUT_NVVM) {
		jit_error(log, "the simulated driver links PTX, and fat binaries that have PTX");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY)
		return read_containers(cc, data, size, text, length);
	if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_CUBIN && type != CU_JIT_INPUT_FATBINARY)
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_JIT_INPUT_PTX) {
		*length = strnlen(data, size);
		*text = strndup(data, *length);
		return *text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	status = fatbin_find_ptx(data, size, cc, text, length, message, sizeof(message));
	/* nvcc adds its library for kernels that launch kernels to every program: who needs it misses its names */
	if (status == FATBIN_NO_PTX && type == CU_JIT_INPUT_FATBINARY) {
		*text = NULL;
		return CUDA_SUCCESS;
	}
	if (status != FATBIN_OK)
		jit_error(log, message);
	return fatbin_to_cuda(status);
}

static CUresult append(CUlinkState state, const char *text, size_t length)
{
	struct linker *l;

	DRV_LOCKED();
	l = find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	return join(&l->text, &l->length, text, length) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name, unsigned int n,
			  CUjit_option *options, void **values)
{
	struct jit_log none, log;
	struct ptx_error error;
	struct linker *l;
	char *text = NULL;
	size_t length = 0;
	CUresult r;

	(void)name;
	CONTEXT_ENTER(ctx);
	r = jit_options(n, options, values, &none);
	drv_lock();
	l = find(state);
	if (l)
		log = l->log;
	drv_unlock();
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		r = data && size ? read_input(ctx, type, data, size, &text, &length, &log) : CUDA_ERROR_INVALID_VALUE;
	if (text) {
		r = ptx_to_cuda(ptx_check(text, length, &error));
		if (r != CUDA_SUCCESS)
			jit_error(&log, error.message);
	}
	if (r == CUDA_SUCCESS && text)
		r = jit_apply(none.max_registers ? &none : &log, &text, &length);
	if (r == CUDA_SUCCESS && text)
		r = append(state, text, length);
	free(text);
	return r;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int n, CUjit_option *options,
			  void **values)
{
	size_t length;
	void *data;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	r = image_read_file(path, &data, &length);
	if (r != CUDA_SUCCESS)
		return r;
	r = cuLinkAddData_v2(state, type, data, length, path, n, options, values);
	free(data);
	return r;
}

/* What was joined so far, and the log. */
static CUresult take(CUlinkState state, char **text, size_t *length, struct jit_log *log, void ***values)
{
	struct linker *l;

	DRV_LOCKED();
	l = find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!l->text || l->cubin)
		return CUDA_ERROR_INVALID_VALUE;
	*log = l->log;
	*values = l->values;
	*length = l->length;
	*text = strdup(l->text);
	return *text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size)
{
	struct module *m;
	struct linker *l;
	struct jit_log log;
	void **values;
	size_t length;
	char *text;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = take(state, &text, &length, &log, &values);
	if (r != CUDA_SUCCESS)
		return r;
	r = module_load_text(ctx, text, length, &log, &m);
	jit_finish(&log, values);
	DRV_LOCKED();
	if (r == CUDA_SUCCESS)
		module_destroy(m);
	l = find(state);
	if (r == CUDA_SUCCESS && (!l || l->cubin))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS) {
		free(text);
		return r;
	}
	l->cubin = text;
	if (cubin)
		*cubin = text;
	if (size)
		*size = length + 1;
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
	struct linker *l;

	DRV_LOCKED();
	l = find(state);
	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	handle_remove(l);
	free(l->text);
	free(l->cubin);
	free(l);
	return CUDA_SUCCESS;
}
