/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by their numbers; how they are made, and how large their work areas are. */
#include <pthread.h>
#include <stdlib.h>

#include "fft.h"

enum { PLANS = 1 << 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ft_plan *plans[PLANS];

int ft_status(int status)
{
	switch (status) {
	case BL_SUCCESS:
		return FT_SUCCESS;
	case BL_ALLOC_FAILED:
		return FT_ALLOC_FAILED;
	case BL_NOT_INITIALIZED:
		return FT_SETUP_FAILED;
	case BL_EXECUTION_FAILED:
		return FT_EXEC_FAILED;
	default:
		return FT_INTERNAL_ERROR;
	}
}

struct ft_plan *ft_plan_find(int number)
{
	struct ft_plan *found;

	if (number <= 0 || number > PLANS)
		return NULL;
	pthread_mutex_lock(&lock);
	found = plans[number - 1];
	pthread_mutex_unlock(&lock);
	return found;
}

int ft_plan_new(int *number)
{
	struct ft_plan *p;
	struct bl_context *context;
	int place = 0, status = ft_status(bl_context_current(&context));

	if (status != FT_SUCCESS)
		return status;
	p = calloc(1, sizeof *p);
	if (!p)
		return FT_ALLOC_FAILED;
	p->allocates = true;
	pthread_mutex_lock(&lock);
	while (place < PLANS && plans[place])
		place++;
	if (place < PLANS)
		plans[place] = p;
	pthread_mutex_unlock(&lock);
	*number = place + 1;
	if (place < PLANS)
		return FT_SUCCESS;
	free(p);
	return FT_ALLOC_FAILED;
}

/* Work that was posted may use it still. */
void ft_plan_release(struct ft_plan *p)
{
	if (!p->own)
		return;
	bl_driver.cuCtxSynchronize();
	bl_driver.cuMemFree_v2(p->own);
	p->own = p->area = 0;
}

int ft_plan_end(int number)
{
	struct ft_plan *p = ft_plan_find(number);

	if (!p)
		return FT_INVALID_PLAN;
	pthread_mutex_lock(&lock);
	plans[number - 1] = NULL;
	pthread_mutex_unlock(&lock);
	ft_plan_release(p);
	free(p);
	return FT_SUCCESS;
}

/* ---- by each function's arguments */

static int make_plan(int number, const struct ft_request *r, size_t *bytes)
{
	struct ft_plan *p = ft_plan_find(number);
	int status = p && !p->made ? FT_SUCCESS : FT_INVALID_PLAN;

	if (status == FT_SUCCESS)
		status = bytes ? ft_shape_make(r, &p->shape) : FT_INVALID_VALUE;
	if (status != FT_SUCCESS)
		return status;
	*bytes = p->bytes = ft_shape_area(&p->shape);
	if (p->allocates && p->bytes && bl_driver.cuMemAlloc_v2(&p->own, p->bytes) != CUDA_SUCCESS) {
		p->own = 0;
		return FT_ALLOC_FAILED;
	}
	p->area = p->own;
	p->made = true;
	return FT_SUCCESS;
}

static int estimate(const struct ft_request *r, size_t *bytes)
{
	struct ft_shape shape;
	int status = bytes ? ft_shape_make(r, &shape) : FT_INVALID_VALUE;

	if (status == FT_SUCCESS)
		*bytes = ft_shape_area(&shape);
	return status;
}

static int get_size(int number, const struct ft_request *r, size_t *bytes)
{
	return ft_plan_find(number) ? estimate(r, bytes) : FT_INVALID_PLAN;
}

static int request_few(struct ft_request *r, int rank, const int64_t *n, int type, int64_t batch)
{
	*r = (struct ft_request){ .rank = rank, .batch = batch };
	for (int i = 0; i < rank; i++)
		r->n[i] = n[i];
	return ft_types(type, r) ? FT_SUCCESS : FT_INVALID_TYPE;
}

/* Layouts as they are in arrays of either width. */
#define REQUEST_MANY(name, number)                                                                                        \
	static int name(struct ft_request *r, int rank, const number *n, const number *in, const number *out)             \
	{                                                                                                                 \
		if (rank < 1 || rank > FT_RANK || !n)                                                                     \
			return FT_INVALID_VALUE;                                                                          \
		*r = (struct ft_request){ .rank = rank, .in_given = in != NULL, .out_given = out != NULL };               \
		for (int i = 0; i < rank; i++) {                                                                          \
			r->n[i] = n[i];                                                                                   \
			r->in.embed[i] = in ? in[i] : 0;                                                                  \
			r->out.embed[i] = out ? out[i] : 0;                                                               \
		}                                                                                                         \
		return FT_SUCCESS;                                                                                        \
	}
REQUEST_MANY(request_many, int)
REQUEST_MANY(request_many_64, int64_t)

static void set_strides(struct ft_request *r, int64_t in, int64_t in_distance, int64_t out, int64_t out_distance, int64_t batch)
{
	r->in.stride = in;
	r->in.distance = in_distance;
	r->out.stride = out;
	r->out.distance = out_distance;
	r->batch = batch;
}

#define DESCRIBED(verb, function)                                                                                              \
	int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes)                                              \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_few(&r, 1, (const int64_t[]){ nx }, type, batch);                                         \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}                                                                                                                      \
	int cufft##verb##2d(int plan, int nx, int ny, int type, size_t *bytes)                                                 \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_few(&r, 2, (const int64_t[]){ nx, ny }, type, 1);                                         \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}                                                                                                                      \
	int cufft##verb##3d(int plan, int nx, int ny, int nz, int type, size_t *bytes)                                         \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_few(&r, 3, (const int64_t[]){ nx, ny, nz }, type, 1);                                     \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}                                                                                                                      \
	int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,   \
			      int out_distance, int type, int batch, size_t *bytes)                                            \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_many(&r, rank, n, in, out);                                                               \
		set_strides(&r, in_stride, in_distance, out_stride, out_distance, batch);                                      \
		if (status == FT_SUCCESS && !ft_types(type, &r))                                                               \
			status = FT_INVALID_TYPE;                                                                              \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}                                                                                                                      \
	int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,           \
				int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch,               \
				size_t *bytes)                                                                                 \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_many_64(&r, rank, n, in, out);                                                            \
		set_strides(&r, in_stride, in_distance, out_stride, out_distance, batch);                                      \
		if (status == FT_SUCCESS && !ft_types(type, &r))                                                               \
			status = FT_INVALID_TYPE;                                                                              \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}                                                                                                                      \
	int cufftXt##verb##Many(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,           \
				int in_type, int64_t *out, int64_t out_stride, int64_t out_distance, int out_type,             \
				int64_t batch, size_t *bytes, int execution_type)                                              \
	{                                                                                                                      \
		struct ft_request r;                                                                                           \
		int status = request_many_64(&r, rank, n, in, out);                                                            \
		set_strides(&r, in_stride, in_distance, out_stride, out_distance, batch);                                      \
		r.in_type = in_type;                                                                                           \
		r.out_type = out_type;                                                                                         \
		if (status == FT_SUCCESS && execution_type != (bl_is_complex(in_type) ? in_type : out_type))                   \
			status = FT_INVALID_TYPE;                                                                              \
		return status == FT_SUCCESS ? function(plan, &r, bytes) : status;                                              \
	}

DESCRIBED(MakePlan, make_plan)
DESCRIBED(GetSize, get_size)

int cufftEstimate1d(int nx, int type, int batch, size_t *bytes)
{
	struct ft_request r;
	int status = request_few(&r, 1, (const int64_t[]){ nx }, type, batch);

	return status == FT_SUCCESS ? estimate(&r, bytes) : status;
}

int cufftEstimate2d(int nx, int ny, int type, size_t *bytes)
{
	struct ft_request r;
	int status = request_few(&r, 2, (const int64_t[]){ nx, ny }, type, 1);

	return status == FT_SUCCESS ? estimate(&r, bytes) : status;
}

int cufftEstimate3d(int nx, int ny, int nz, int type, size_t *bytes)
{
	struct ft_request r;
	int status = request_few(&r, 3, (const int64_t[]){ nx, ny, nz }, type, 1);

	return status == FT_SUCCESS ? estimate(&r, bytes) : status;
}

int cufftEstimateMany(int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance, int type,
		      int batch, size_t *bytes)
{
	struct ft_request r;
	int status = request_many(&r, rank, n, in, out);

	set_strides(&r, in_stride, in_distance, out_stride, out_distance, batch);
	if (status == FT_SUCCESS && !ft_types(type, &r))
		status = FT_INVALID_TYPE;
	return status == FT_SUCCESS ? estimate(&r, bytes) : status;
}
