/* SPDX-License-Identifier: Apache-2.0 */
/* A function of cuBLAS by its id. Addresses on the device are the library's kernels' to use, as a guest's own kernels would. */
#include <stdatomic.h>
#include <string.h>

#include "blas_calls.h"
#include "blas_functions.h"
#include "mathematics.h"

static _Atomic(void *) found[BLAS_FUNCTIONS];

static void *look_up(const struct blas_function *f)
{
	size_t place = (size_t)(f - blas_functions);
	void *function;

	function = atomic_load(&found[place]);
	if (!function) {
		function = wk_math_find(VG_MATH_BLAS, f->name);
		atomic_store(&found[place], function);
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
	*(void **)&set = wk_math_find(VG_MATH_BLAS, "cublasSetStream_v2");
	status = set ? set(math->handle, call->stream) : MATH_NOT_SUPPORTED;
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

int wk_blas_call(struct math_call *call)
{
	const struct blas_function *f = blas_find(call->function);
	void *function = f ? look_up(f) : NULL;
	uint64_t words[BLAS_ARGUMENTS];
	struct frame frame = { .left = 0 };
	int status;

	if (!function)
		return MATH_NOT_SUPPORTED;
	if (!decode(call, f, &frame))
		return MATH_INVALID_VALUE;
	point_at_values(call, f, &frame, words);
	status = set_stream(call);
	if (status == MATH_OK)
		status = set_mode(call->math, call->on_device);
	if (status == MATH_OK)
		status = blas_callers[f - blas_functions](function, call->math->handle, words);
	if (status == MATH_OK)
		give_back(call, f, &frame);
	return status;
}
