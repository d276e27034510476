/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are made, and sizes of work areas are asked for. */
#include <string.h>

#include "fft.h"

static int ask(uint64_t handle, uint64_t function, const struct fft_shape *s, size_t *bytes)
{
	uint64_t reply = 0;
	struct math_request request = { .handle = handle, .function = function, .wait = MATH_ASK, .arguments = s, .length = sizeof(*s),
					.values = &reply, .room = sizeof(reply),
					.name = function == FFT_SIZE ? "cufftGetSize" : "cufftEstimate" };
	int result = math_channel()->call(&request);

	if (result || request.status)
		return result ? fft_status(result) : request.status;
	*bytes = reply;
	return request.filled == sizeof(reply) ? FFT_OK : FFT_INTERNAL_ERROR;
}

static int make(struct fft_plan *p, const struct fft_shape *s)
{
	uint64_t reply = 0;
	struct math_request request = { .handle = p->handle, .function = FFT_PLAN, .arguments = s, .length = sizeof(*s),
					.values = &reply, .room = sizeof(reply), .name = "cufftMakePlan" };
	int status, result = math_channel()->make(&request, &p->id);

	if (result || request.status)
		return result ? fft_status(result) : request.status;
	p->bytes = reply;
	p->suits = fft_suits(s);
	p->kind = fft_kind(s);
	status = p->allocates && p->bytes ? fft_allocate(p) : FFT_OK;
	if (status != FFT_OK)
		math_channel()->destroy(p->id);
	p->made = status == FFT_OK;
	return status;
}

static void add_properties(const struct fft_plan *p, struct fft_shape *s)
{
	s->set = p->set;
	memcpy(s->properties, p->properties, sizeof(s->properties));
}

/* A plan is made once. */
static int make_plan(int plan, struct fft_shape *s, size_t *bytes)
{
	struct fft_plan *p = fft_enter(plan);
	int status = p && !p->made ? FFT_OK : FFT_INVALID_PLAN;

	if (status == FFT_OK && !bytes)
		status = FFT_INVALID_VALUE;
	if (status == FFT_OK) {
		add_properties(p, s);
		status = make(p, s);
	}
	if (status == FFT_OK)
		*bytes = p->bytes;
	if (p)
		fft_leave(p);
	return status;
}

static int get_size(int plan, struct fft_shape *s, size_t *bytes)
{
	struct fft_plan *p = fft_enter(plan);
	uint64_t handle = p ? p->handle : 0;

	if (p) {
		add_properties(p, s);
		fft_leave(p);
	}
	if (!p || !bytes)
		return p ? FFT_INVALID_VALUE : FFT_INVALID_PLAN;
	return ask(handle, FFT_SIZE, s, bytes);
}

static int estimate(const struct fft_shape *s, size_t *bytes)
{
	uint64_t handle;
	void *context;
	int status = bytes ? fft_open(&handle, &context) : FFT_INVALID_VALUE;

	return status == FFT_OK ? ask(handle, FFT_ESTIMATE, s, bytes) : status;
}

/* ---- by each function's arguments; a rank that there is not is as wrong as no sizes */

#define DESCRIBED(verb, function)                                                                                               \
	int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes)                                               \
	{                                                                                                                       \
		struct fft_shape s = fft_flat(FFT_1D, &nx, type, batch);                                                        \
		return function(plan, &s, bytes);                                                                               \
	}                                                                                                                       \
	int cufft##verb##2d(int plan, int nx, int ny, int type, size_t *bytes)                                                  \
	{                                                                                                                       \
		struct fft_shape s = fft_flat(FFT_2D, (const int[]){ nx, ny }, type, 1);                                        \
		return function(plan, &s, bytes);                                                                               \
	}                                                                                                                       \
	int cufft##verb##3d(int plan, int nx, int ny, int nz, int type, size_t *bytes)                                          \
	{                                                                                                                       \
		struct fft_shape s = fft_flat(FFT_3D, (const int[]){ nx, ny, nz }, type, 1);                                    \
		return function(plan, &s, bytes);                                                                               \
	}                                                                                                                       \
	int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,    \
			      int out_distance, int type, int batch, size_t *bytes)                                             \
	{                                                                                                                       \
		struct fft_shape s = fft_typed(FFT_MANY, type, batch);                                                          \
		fft_strides(&s, in_stride, in_distance, out_stride, out_distance);                                              \
		return fft_many(&s, rank, n, in, out) ? function(plan, &s, bytes) : FFT_INVALID_VALUE;                          \
	}                                                                                                                       \
	int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,            \
				int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch, size_t *bytes) \
	{                                                                                                                       \
		struct fft_shape s = fft_typed(FFT_MANY_64, type, batch);                                                       \
		fft_strides(&s, in_stride, in_distance, out_stride, out_distance);                                              \
		return fft_many_64(&s, rank, n, in, out) ? function(plan, &s, bytes) : FFT_INVALID_VALUE;                       \
	}                                                                                                                       \
	int cufftXt##verb##Many(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,            \
				int in_type, int64_t *out, int64_t out_stride, int64_t out_distance, int out_type,              \
				int64_t batch, size_t *bytes, int execution_type)                                               \
	{                                                                                                                       \
		struct fft_shape s = fft_typed(FFT_XT, execution_type, batch);                                                  \
		fft_strides(&s, in_stride, in_distance, out_stride, out_distance);                                              \
		s.in.type = (uint64_t)in_type;                                                                                  \
		s.out.type = (uint64_t)out_type;                                                                                \
		return fft_many_64(&s, rank, n, in, out) ? function(plan, &s, bytes) : FFT_INVALID_VALUE;                       \
	}

DESCRIBED(MakePlan, make_plan)
DESCRIBED(GetSize, get_size)

int cufftEstimate1d(int nx, int type, int batch, size_t *bytes)
{
	struct fft_shape s = fft_flat(FFT_1D, &nx, type, batch);

	return estimate(&s, bytes);
}

int cufftEstimate2d(int nx, int ny, int type, size_t *bytes)
{
	struct fft_shape s = fft_flat(FFT_2D, (const int[]){ nx, ny }, type, 1);

	return estimate(&s, bytes);
}

int cufftEstimate3d(int nx, int ny, int nz, int type, size_t *bytes)
{
	struct fft_shape s = fft_flat(FFT_3D, (const int[]){ nx, ny, nz }, type, 1);

	return estimate(&s, bytes);
}

int cufftEstimateMany(int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance, int type,
		      int batch, size_t *bytes)
{
	struct fft_shape s = fft_typed(FFT_MANY, type, batch);

	fft_strides(&s, in_stride, in_distance, out_stride, out_distance);
	return fft_many(&s, rank, n, in, out) ? estimate(&s, bytes) : FFT_INVALID_VALUE;
}

/* ---- a number and a plan at once */

static int plan_anew(int *plan, struct fft_shape *s)
{
	size_t bytes;
	int number, status = plan ? fft_new(&number) : FFT_INVALID_VALUE;

	if (status != FFT_OK)
		return status;
	status = make_plan(number, s, &bytes);
	if (status == FFT_OK)
		*plan = number;
	else
		cufftDestroy(number);
	return status;
}

int cufftPlan1d(int *plan, int nx, int type, int batch)
{
	struct fft_shape s = fft_flat(FFT_1D, &nx, type, batch);

	return plan_anew(plan, &s);
}

int cufftPlan2d(int *plan, int nx, int ny, int type)
{
	struct fft_shape s = fft_flat(FFT_2D, (const int[]){ nx, ny }, type, 1);

	return plan_anew(plan, &s);
}

int cufftPlan3d(int *plan, int nx, int ny, int nz, int type)
{
	struct fft_shape s = fft_flat(FFT_3D, (const int[]){ nx, ny, nz }, type, 1);

	return plan_anew(plan, &s);
}

int cufftPlanMany(int *plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance,
		  int type, int batch)
{
	struct fft_shape s = fft_typed(FFT_MANY, type, batch);

	fft_strides(&s, in_stride, in_distance, out_stride, out_distance);
	return fft_many(&s, rank, n, in, out) ? plan_anew(plan, &s) : FFT_INVALID_VALUE;
}
