/* SPDX-License-Identifier: Apache-2.0 */
/* A function of cuBLAS or cuSOLVER by its id. Addresses on the device are the library's kernels' to use, as a guest's own kernels would. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "blas_calls.h"
#include "blas_functions.h"
#include "mathematics.h"

static _Atomic(void *) found_blas[BLAS_FUNCTIONS], found_solver[SOLVER_FUNCTIONS];

/* A library whose functions stand in a table. */
static const struct library {
	const struct blas_function *functions;
	blas_caller *const *callers;
	_Atomic(void *) *found;
	unsigned int count;
	const char *set_stream;
	int invalid_value, not_supported;
} blas = { blas_functions, blas_callers, found_blas, BLAS_FUNCTIONS, "cublasSetStream_v2", MATH_INVALID_VALUE, MATH_NOT_SUPPORTED },
  solver = { solver_functions, solver_callers, found_solver, SOLVER_FUNCTIONS, "cusolverDnSetStream", SOLVER_INVALID_VALUE,
	     SOLVER_NOT_SUPPORTED };

static const struct library *library_of(const struct math_call *call)
{
	return call->math->library == VG_MATH_SOLVER ? &solver : &blas;
}

static void *look_up(const struct math_call *call, const struct blas_function *f)
{
	const struct library *l = library_of(call);
	size_t place = (size_t)(f - l->functions);
	void *function = atomic_load(&l->found[place]);

	if (!function) {
		function = wk_math_find(call->math->library, f->name);
		atomic_store(&l->found[place], function);
	}
	return function;
}

struct frame {
	uint64_t words[BLAS_ARGUMENTS];
	_Alignas(16) uint8_t values[BLAS_ARGUMENTS][BLAS_VALUE * BLAS_VALUES];
	uint8_t *behind;          /* of the guest's values: the next */
	size_t left;
};

/* A value that came with the call, and room for what goes back. */
static bool take_value(const struct math_call *call, const struct blas_function *f, struct frame *frame, unsigned int i)
{
	const struct blas_argument *a = &f->arguments[i];
	size_t bytes = blas_value_bytes(f, frame->words, i), padded = blas_padded(bytes);

	if (!bytes || bytes > sizeof(frame->values[i]))
		return false;
	if (blas_is_sent(a, call->on_device)) {
		if (padded > frame->left)
			return false;
		memcpy(frame->values[i], frame->behind, bytes);
		frame->behind += padded;
		frame->left -= padded;
	}
	return true;
}

static bool decode(const struct math_call *call, const struct blas_function *f, struct frame *frame)
{
	size_t bytes = f->count * sizeof(uint64_t);

	if (call->length < bytes)
		return false;
	memcpy(frame->words, call->arguments, bytes);
	frame->behind = (uint8_t *)call->arguments + bytes;
	frame->left = call->length - bytes;
	for (unsigned int i = 0; i < f->count; i++)
		if ((blas_is_sent(&f->arguments[i], call->on_device) || blas_is_returned(&f->arguments[i], call->on_device)) &&
		    !take_value(call, f, frame, i))
			return false;
	return !frame->left;
}

/* A null pointer stays one: the library says what it thinks of that. */
static void point_at_values(const struct math_call *call, const struct blas_function *f, const struct frame *frame,
			    uint64_t *words)
{
	for (unsigned int i = 0; i < f->count; i++) {
		const struct blas_argument *a = &f->arguments[i];

		words[i] = frame->words[i];
		if (words[i] && (blas_is_sent(a, call->on_device) || blas_is_returned(a, call->on_device)))
			words[i] = (uintptr_t)frame->values[i];
	}
}

static void give_back(struct math_call *call, const struct blas_function *f, const struct frame *frame)
{
	for (unsigned int i = 0; i < f->count; i++) {
		size_t bytes = blas_value_bytes(f, frame->words, i), padded = blas_padded(bytes);

		if (!blas_is_returned(&f->arguments[i], call->on_device))
			continue;
		if (padded > call->room - call->filled)
			return;
		memset(call->values + call->filled, 0, padded);
		memcpy(call->values + call->filled, frame->values[i], bytes);
		call->filled += padded;
	}
}

static int set_stream(const struct math_call *call)
{
	struct wk_math *math = call->math;
	int (*set)(void *, CUstream);
	int status;

	if (math->settled && !call->anew && call->stream == math->stream)
		return MATH_OK;
	*(void **)&set = wk_math_find(math->library, library_of(call)->set_stream);
	status = set ? set(math->handle, call->stream) : library_of(call)->not_supported;
	math->settled = status == MATH_OK;
	math->stream = call->stream;
	return status;
}

static int set_mode(struct wk_math *math, bool on_device)
{
	int (*set)(void *, int);
	int status;

	if (on_device == math->on_device)
		return MATH_OK;
	*(void **)&set = wk_math_find(VG_MATH_BLAS, "cublasSetPointerMode_v2");
	status = set ? set(math->handle, on_device) : MATH_NOT_SUPPORTED;
	if (status == MATH_OK)
		math->on_device = on_device;
	return status;
}

/* What decides beside the arguments. *scratch: to be freed after the call. */
static int prepare(struct math_call *call, const struct blas_function *f, uint64_t *words, void **scratch)
{
	*scratch = NULL;
	if (call->math->library == VG_MATH_SOLVER)
		return wk_solver_begin(call, f, words, scratch);
	return set_mode(call->math, call->on_device);
}

int wk_blas_call(struct math_call *call)
{
	const struct library *l = library_of(call);
	const struct blas_function *f = blas_find(l->functions, l->count, call->function);
	void *function = f ? look_up(call, f) : NULL, *scratch;
	uint64_t words[BLAS_ARGUMENTS];
	struct frame frame = { .left = 0 };
	int status;

	if (!function)
		return l->not_supported;
	if (!decode(call, f, &frame))
		return l->invalid_value;
	point_at_values(call, f, &frame, words);
	status = set_stream(call);
	if (status == MATH_OK)
		status = prepare(call, f, words, &scratch);
	if (status != MATH_OK)
		return status;
	status = l->callers[f - l->functions](function, call->math->handle, words);
	free(scratch);
	if (status == MATH_OK)
		give_back(call, f, &frame);
	return status;
}
