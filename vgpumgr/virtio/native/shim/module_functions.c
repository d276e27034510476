/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions a module has, and which kernels a library: the worker names them, and each is looked up by its name. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* Puts what has that name at the next place. */
typedef CUresult take_fn(void *to, const char *name);

static CUresult ask(CUmodule module, uint32_t first, struct vg_module_functions_reply *out)
{
	struct vg_module_functions_request in = { .first = first };
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_module(module, &in.context, &in.module);
	return r == CUDA_SUCCESS ? vg_send_module_functions(&in, out) : r;
}

static CUresult count_functions(CUmodule module, unsigned int *count)
{
	struct vg_module_functions_reply *out = malloc(sizeof(*out));
	CUresult r = out ? ask(module, UINT32_MAX, out) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		*count = out->total;
	free(out);
	return r;
}

/* One reply's names, each with its NUL. */
static CUresult take_names(const struct vg_module_functions_reply *out, unsigned int most, take_fn *take, void *to, unsigned int *taken)
{
	const char *name = (const char *)out->names, *end = name + out->names_length, *next;
	CUresult r = CUDA_SUCCESS;

	for (; r == CUDA_SUCCESS && *taken < most && name < end; name = next + 1) {
		next = memchr(name, 0, (size_t)(end - name));
		if (!next)
			return CUDA_ERROR_UNKNOWN;
		r = take(to, name);
		*taken += r == CUDA_SUCCESS;
	}
	return r;
}

static CUresult take_all(CUmodule module, unsigned int most, take_fn *take, void *to)
{
	struct vg_module_functions_reply *out = malloc(sizeof(*out));
	CUresult r = out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	unsigned int taken = 0, before;

	do {
		before = taken;
		if (r == CUDA_SUCCESS)
			r = ask(module, taken, out);
		if (r == CUDA_SUCCESS)
			r = take_names(out, most, take, to, &taken);
	} while (r == CUDA_SUCCESS && taken > before && taken < most);
	free(out);
	return r;
}

SHIM_API CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	CUresult r = shim_enter(&(uint64_t){ 0 });

	if (r == CUDA_SUCCESS && !count)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? count_functions(mod, count) : r;
}

struct functions {
	CUmodule module;
	CUfunction *next;
};

static CUresult take_function(void *to, const char *name)
{
	struct functions *f = to;

	return cuModuleGetFunction(f->next++, f->module, name);
}

SHIM_API CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	struct functions to = { mod, functions };
	CUresult r = shim_enter(&(uint64_t){ 0 });

	if (r == CUDA_SUCCESS && (!functions || !numFunctions))
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? take_all(mod, numFunctions, take_function, &to) : r;
}

SHIM_API CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	CUmodule module;
	CUresult r = count ? cuLibraryGetModule(&module, lib) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? count_functions(module, count) : r;
}

struct kernels {
	CUlibrary library;
	CUkernel *next;
};

static CUresult take_kernel(void *to, const char *name)
{
	struct kernels *k = to;

	return cuLibraryGetKernel(k->next++, k->library, name);
}

SHIM_API CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	struct kernels to = { lib, kernels };
	CUmodule module;
	CUresult r = kernels ? cuLibraryGetModule(&module, lib) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? take_all(module, numKernels, take_kernel, &to) : r;
}
