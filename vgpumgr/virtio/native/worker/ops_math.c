/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: handles of mathematics libraries, each the library's own in the guest's context, and calls of functions. */
#include <string.h>

#include "blas_functions.h"
#include "dnn_wire.h"
#include "fft_wire.h"
#include "lt_wire.h"
#include "math_channel.h"
#include "mathematics.h"
#include "rand_wire.h"
#include "session.h"
#include "sparse_wire.h"

CUresult wk_do_math_open(struct wk_call *c, const struct vg_math_open_request *in, struct vg_math_open_reply *out)
{
	(void)c;
	if (!wk_math_load(in->library))
		return CUDA_ERROR_NOT_SUPPORTED;
	out->version = wk_math_version(in->library);
	out->path_length = (uint32_t)strlen(wk_math_path(in->library));
	memcpy(out->path, wk_math_path(in->library), out->path_length);
	return CUDA_SUCCESS;
}

CUresult wk_do_math_create(struct wk_call *c, const struct vg_math_create_request *in, struct vg_math_create_reply *out)
{
	bool counted = in->library == VG_MATH_DNN || in->library == VG_MATH_SOLVER || in->library == VG_MATH_SPARSE;
	uint64_t bytes = in->library == VG_MATH_BLAS ? MATH_HANDLE_BYTES : counted ? MATH_PLAN_BYTES : 0;
	struct wk_math *math;
	CUresult r = wk_math_load(in->library) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_MATH, bytes);
	if (r != CUDA_SUCCESS)
		return r;
	math = wk_math_new(in->library, &out->status);
	if (math)
		return wk_fill(c, WK_MATH, in->created, math, bytes);
	wk_refund(WK_MATH, bytes);
	return CUDA_SUCCESS;
}

CUresult wk_do_math_destroy(struct wk_call *c, const struct vg_math_destroy_request *in)
{
	/* the library waits for the device */
	return wk_remove_later(c, WK_MATH, in->handle);
}

/* An object may be an argument of calls of several handles, and may be made anew by one: none else has it until its call is made. */
static int call_with_object(struct math_call *call)
{
	bool object = call->plan && call->plan->library >= MATH_SYEVJ && call->plan->library <= MATH_BSRSM2;
	int status;

	if (object)
		pthread_mutex_lock(&call->plan->lock);
	status = wk_blas_call(call);
	if (object)
		pthread_mutex_unlock(&call->plan->lock);
	return status;
}

static int call_locked(struct math_call *call)
{
	switch (call->math->library) {
	case VG_MATH_DNN:
		return wk_dnn_call(call);
	case VG_MATH_FFT:
		return wk_fft_call(call);
	case MATH_FFT_PLAN:
		return wk_fft_execute(call);
	case MATH_RAND_GENERATOR:
		return wk_rand_generate(call);
	case VG_MATH_SOLVER:
	case VG_MATH_SPARSE:
		return call_with_object(call);
	case VG_MATH_BLAS:
		return call->function < LT_FUNCTIONS ? wk_lt_call(call) : wk_blas_call(call);
	case VG_MATH_LT:
		return call->function < LT_FUNCTIONS ? wk_lt_call(call) : MATH_NOT_SUPPORTED;
	default:
		return MATH_NOT_SUPPORTED;
	}
}

static int call_library(struct math_call *call)
{
	int status;

	pthread_mutex_lock(&call->math->lock);
	status = call_locked(call);
	pthread_mutex_unlock(&call->math->lock);
	return status;
}

/*
 * What gives a value back runs on threads of its own, and cannot be captured: its value would be another in each launch. Nor can
 * a call with a work area on the host, which is gone when a graph is launched. The size of a work area uses no stream, and leaves
 * a capture as it is. All else is executed in order.
 */
static CUresult enter_capture(struct wk_call *c, struct wk_object *math, const struct wk_object *stream, const struct math_call *call)
{
	const struct wk_math *handle = wk_raw(math);
	bool lends = handle->library == VG_MATH_SOLVER && wk_solver_lends(call);

	if (call->values && wk_blas_measures(handle->library, call->function))
		return CUDA_SUCCESS;
	return call->values || lends ? wk_capture_refuse(c, stream) : wk_capture_note(c, math, 1);
}

/* A call of cuSOLVER or cuSPARSE has an object among its arguments, or none. Nothing is noted where it gives a value back. */
static CUresult hold_object(struct wk_call *c, struct math_call *call, struct wk_object **object)
{
	int place = wk_blas_object(call->library, call->function);
	uint64_t handle;
	CUresult r;

	if (place < 0 || call->length < ((size_t)place + 1) * sizeof(handle))
		return CUDA_SUCCESS;
	memcpy(&handle, call->arguments + (size_t)place * sizeof(handle), sizeof(handle));
	r = wk_hold(c, WK_MATH, handle, object);
	if (r == CUDA_SUCCESS && (*object)->context != c->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS && !call->values)
		r = wk_capture_note(c, *object, 0);
	if (r == CUDA_SUCCESS && wk_raw(*object) != (void *)call->math)
		call->plan = wk_raw(*object);
	return r;
}

/* A graph that executes a plan keeps that, too: what was compiled for it is the plan's. */
static CUresult hold_plan(struct wk_call *c, struct math_call *call, struct wk_object **plan)
{
	uint64_t handle = 0;
	CUresult r;

	if (call->library == VG_MATH_SOLVER || call->library == VG_MATH_SPARSE)
		return hold_object(c, call, plan);
	if (call->function != DNN_EXECUTE || call->math->library != VG_MATH_DNN)
		return CUDA_SUCCESS;
	/* it gives nothing back; and what does is on threads of its own, where nothing may be noted of a capture */
	if (call->values)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (call->length >= sizeof(handle))
		memcpy(&handle, call->arguments, sizeof(handle));
	r = wk_hold(c, WK_MATH, handle, plan);
	if (r == CUDA_SUCCESS && (*plan)->context != c->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = wk_capture_note(c, *plan, 0);
	if (r == CUDA_SUCCESS && wk_raw(*plan) != (void *)call->math)
		call->plan = wk_raw(*plan);
	return r;
}

static CUresult run(struct wk_call *c, uint64_t handle, uint64_t stream, struct math_call *call, int *status)
{
	struct wk_object *math WK_HELD = NULL, *on WK_HELD = NULL, *plan WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_MATH, handle, &math);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_STREAM, stream, &on);
	if (r == CUDA_SUCCESS && math->context != c->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = enter_capture(c, math, on, call);
	if (r != CUDA_SUCCESS)
		return r;
	call->math = wk_raw(math);
	call->library = call->math->library;
	call->stream = wk_raw(on);
	r = hold_plan(c, call, &plan);
	if (r == CUDA_SUCCESS)
		*status = call_library(call);
	return r;
}

static CUresult result_of_solver(int status)
{
	switch (status) {
	case MATH_OK:
		return CUDA_SUCCESS;
	case SOLVER_ALLOC_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case SOLVER_INVALID_VALUE:
		return CUDA_ERROR_INVALID_VALUE;
	case SOLVER_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static CUresult result_of_sparse(int status)
{
	switch (status) {
	case SPARSE_OK:
		return CUDA_SUCCESS;
	case SPARSE_ALLOC_FAILED:
	case SPARSE_INSUFFICIENT_RESOURCES:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case SPARSE_INVALID_VALUE:
		return CUDA_ERROR_INVALID_VALUE;
	case SPARSE_NOT_SUPPORTED:
	case SPARSE_MATRIX_TYPE_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static CUresult result_of_transform(int status)
{
	switch (status) {
	case FFT_OK:
		return CUDA_SUCCESS;
	case FFT_ALLOC_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case FFT_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return status == FFT_INTERNAL_ERROR || status == FFT_EXEC_FAILED ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult result_of_generator(int status)
{
	switch (status) {
	case RAND_OK:
		return CUDA_SUCCESS;
	case RAND_ALLOCATION_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case RAND_TYPE_ERROR:
	case RAND_OUT_OF_RANGE:
	case RAND_LENGTH_NOT_MULTIPLE:
		return CUDA_ERROR_INVALID_VALUE;
	case RAND_ARCH_MISMATCH:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

/* The failure of a posted call is an error of a later one; the context goes on, unless the driver says otherwise. */
static CUresult as_result(uint32_t library, int status)
{
	if (library == VG_MATH_FFT || library == MATH_FFT_PLAN)
		return result_of_transform(status);
	if (library == MATH_RAND_GENERATOR)
		return result_of_generator(status);
	if (library == VG_MATH_SOLVER)
		return result_of_solver(status);
	if (library == VG_MATH_SPARSE)
		return result_of_sparse(status);
	switch (status) {
	case MATH_OK:
		return CUDA_SUCCESS;
	case MATH_INVALID_VALUE:
		return CUDA_ERROR_INVALID_VALUE;
	case MATH_ALLOC_FAILED:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case MATH_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		/* cuDNN's are thousands: 2 for a value that is wrong, 3 for what is not supported */
		return status / 1000 == 2 ? CUDA_ERROR_INVALID_VALUE :
		       status / 1000 == 3 ? CUDA_ERROR_NOT_SUPPORTED :
		       status == DNN_ALLOC_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
	}
}

static struct math_call read_call(uint64_t function, uint32_t mode, const struct vg_bytes *arguments)
{
	return (struct math_call){ .function = function, .on_device = mode & MATH_ON_DEVICE, .anew = mode & MATH_ANEW,
				   .arguments = arguments->data, .length = arguments->length };
}

CUresult wk_do_math_call(struct wk_call *c, const struct vg_math_call_request *in)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);
	int status = MATH_OK;
	CUresult r = run(c, in->handle, in->stream, &call, &status);

	return r == CUDA_SUCCESS ? as_result(call.library, status) : r;
}

CUresult wk_do_math_try(struct wk_call *c, const struct vg_math_try_request *in, struct vg_math_try_reply *out)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);

	return run(c, in->handle, in->stream, &call, &out->status);
}

CUresult wk_do_math_ask(struct wk_call *c, const struct vg_math_ask_request *in, struct vg_math_ask_reply *out)
{
	struct math_call call = read_call(in->function, in->mode, &in->arguments);
	CUresult r;

	call.values = out->values;
	call.room = sizeof(out->values);
	r = run(c, in->handle, in->stream, &call, &out->status);
	out->values_length = call.filled;
	return r;
}

/* Whether the library keeps such objects. */
static bool is_made(uint32_t library, uint64_t function)
{
	return (library == VG_MATH_DNN && function == DNN_PLAN) || (library == VG_MATH_FFT && function == FFT_PLAN) ||
	       (library == VG_MATH_RAND && function == RAND_GENERATOR) ||
	       (library == VG_MATH_SOLVER && (function == SOLVER_SYEVJ || function == SOLVER_GESVDJ)) ||
	       (library == VG_MATH_SPARSE && function >= SPARSE_SPGEMM && function <= SPARSE_BSRSM2);
}

static struct wk_math *make_plan(struct math_call *call, int *status)
{
	struct wk_math *made;

	pthread_mutex_lock(&call->math->lock);
	switch (call->math->library) {
	case VG_MATH_FFT:
		made = wk_fft_plan(call, status);
		break;
	case VG_MATH_RAND:
		made = wk_rand_generator(call, status);
		break;
	case VG_MATH_SOLVER:
		made = wk_solver_object(call, status);
		break;
	case VG_MATH_SPARSE:
		made = wk_sparse_object(call, status);
		break;
	default:
		made = wk_dnn_plan(call, status);
	}
	pthread_mutex_unlock(&call->math->lock);
	return made;
}

/* Objects of cuSOLVER and cuSPARSE serve several handles; any other ends before the handle that it was made with. */
static struct wk_object *owner_of(const struct wk_math *made, struct wk_object *context, struct wk_object *handle)
{
	return made->library >= MATH_SYEVJ && made->library <= MATH_BSRSM2 ? context : handle;
}

CUresult wk_do_math_make(struct wk_call *c, const struct vg_math_make_request *in, struct vg_math_make_reply *out)
{
	struct math_call call = read_call(in->function, 0, &in->arguments);
	struct wk_object *math WK_HELD = NULL, *o;
	struct wk_math *made;
	uint64_t bytes = MATH_PLAN_BYTES;
	CUresult r = wk_hold(c, WK_MATH, in->handle, &math);

	if (r == CUDA_SUCCESS && math->context != c->context)
		r = CUDA_ERROR_INVALID_CONTEXT;
	call.math = wk_raw(math);
	if (r == CUDA_SUCCESS && !is_made(call.math->library, in->function))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS && call.math->library == VG_MATH_RAND)
		bytes = wk_rand_bytes(&call);
	if (r == CUDA_SUCCESS)
		r = wk_charge(WK_MATH, bytes);
	if (r != CUDA_SUCCESS)
		return r;
	call.values = out->values;
	call.room = sizeof(out->values);
	made = make_plan(&call, &out->status);
	o = made ? wk_object_new(WK_MATH, owner_of(made, c->context, math), made, 0) : NULL;
	out->values_length = (uint32_t)call.filled;
	if (o) {
		o->bytes = bytes;
		return wk_put(c, in->created, o);
	}
	if (made)
		wk_math_end(made);
	wk_refund(WK_MATH, bytes);
	return made ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
