/* SPDX-License-Identifier: Apache-2.0 */
/* A function of cuBLAS, cuSOLVER or cuSPARSE by its id. Addresses on the device are the library's kernels' to use, as a guest's own kernels would. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "blas_calls.h"
#include "blas_functions.h"
#include "mathematics.h"
#include "sparse_wire.h"

static _Atomic(void *) found_blas[BLAS_FUNCTIONS], found_solver[SOLVER_FUNCTIONS], found_sparse[SPARSE_FUNCTIONS];

/* A library whose functions stand in a table. */
static const struct library {
	const struct blas_function *functions;
	blas_caller *const *callers;
	_Atomic(void *) *found;
	unsigned int count;
	const char *set_stream, *set_mode; /* without the second: there are no pointer modes */
	int invalid_value, not_supported;
} blas = { blas_functions, blas_callers, found_blas, BLAS_FUNCTIONS, "cublasSetStream_v2", "cublasSetPointerMode_v2",
	   MATH_INVALID_VALUE, MATH_NOT_SUPPORTED },
  solver = { solver_functions, solver_callers, found_solver, SOLVER_FUNCTIONS, "cusolverDnSetStream", NULL,
	     SOLVER_INVALID_VALUE, SOLVER_NOT_SUPPORTED },
  sparse = { sparse_functions, sparse_callers, found_sparse, SPARSE_FUNCTIONS, "cusparseSetStream", "cusparseSetPointerMode",
	     SPARSE_INVALID_VALUE, SPARSE_NOT_SUPPORTED };

static const struct library *library_of(uint32_t library)
{
	return library == VG_MATH_SOLVER ? &solver : library == VG_MATH_SPARSE ? &sparse : &blas;
}

static const struct blas_function *find(uint32_t library, uint64_t function)
{
	const struct library *l = library_of(library);

	return blas_find(l->functions, l->count, function);
}

bool wk_blas_measures(uint32_t library, uint64_t function)
{
	const struct blas_function *f = find(library, function);

	return f && f->role == BLAS_MEASURES;
}

int wk_blas_object(uint32_t library, uint64_t function)
{
	const struct blas_function *f = find(library, function);

	for (unsigned int i = 0; f && i < f->count; i++)
		if (blas_is_object(&f->arguments[i]))
			return (int)i;
	return -1;
}

static void *look_up(const struct math_call *call, const struct blas_function *f)
{
	const struct library *l = library_of(call->math->library);
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
	_Alignas(16) uint8_t values[BLAS_ARGUMENTS][BLAS_ROOM];
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
	*(void **)&set = wk_math_find(math->library, library_of(math->library)->set_stream);
	status = set ? set(math->handle, call->stream) : library_of(math->library)->not_supported;
	math->settled = status == MATH_OK;
	math->stream = call->stream;
	return status;
}

static int set_mode(struct wk_math *math, bool on_device)
{
	const struct library *l = library_of(math->library);
	int (*set)(void *, int);
	int status;

	if (on_device == math->on_device)
		return MATH_OK;
	*(void **)&set = wk_math_find(math->library, l->set_mode);
	status = set ? set(math->handle, on_device) : l->not_supported;
	if (status == MATH_OK)
		math->on_device = on_device;
	return status;
}

/* What a call has until it has been made. */
struct lent {
	void *scratch;
	struct sparse_lent descriptors;
};

/* What decides beside the arguments. */
static int prepare(struct math_call *call, const struct blas_function *f, uint64_t *words, struct lent *lent)
{
	int status = MATH_OK;

	if (call->math->library == VG_MATH_SOLVER)
		return wk_solver_begin(call, f, words, &lent->scratch);
	if (call->math->library == VG_MATH_SPARSE)
		status = wk_sparse_begin(call, f, words, &lent->descriptors);
	return status == MATH_OK ? set_mode(call->math, call->on_device) : status;
}

/* Where one was lent. A status. */
static int finish(struct math_call *call, struct frame *frame, struct lent *lent, int status)
{
	free(lent->scratch);
	if (call->math->library == VG_MATH_SPARSE)
		return wk_sparse_finish(call, &lent->descriptors, frame->values[lent->descriptors.made_place], status);
	return status;
}

int wk_blas_call(struct math_call *call)
{
	const struct library *l = library_of(call->math->library);
	const struct blas_function *f = blas_find(l->functions, l->count, call->function);
	void *function = f ? look_up(call, f) : NULL;
	uint64_t words[BLAS_ARGUMENTS];
	struct frame frame = { .left = 0 };
	struct lent lent = { .scratch = NULL };
	int status;

	if (!function)
		return l->not_supported;
	if (!decode(call, f, &frame))
		return l->invalid_value;
	point_at_values(call, f, &frame, words);
	status = set_stream(call);
	if (status == MATH_OK)
		status = prepare(call, f, words, &lent);
	if (status == MATH_OK)
		status = l->callers[f - l->functions](function, call->math->handle, words);
	status = finish(call, &frame, &lent, status);
	/* where it is says so, a pivot that is zero */
	if (status == MATH_OK || (l == &sparse && status == SPARSE_ZERO_PIVOT))
		give_back(call, f, &frame);
	return status;
}
