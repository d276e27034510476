/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFFT: plans, which are kept, their execution, and sizes of work areas. The library allocates no work area by itself: the guest
 * does, so that it is counted as its memory.
 */
#include <stdlib.h>
#include <string.h>

#include "fft_wire.h"
#include "math_channel.h"
#include "mathematics.h"

/* Looked up once, by the literal. */
#define FFT(name) wk_math_function(VG_MATH_FFT, name)

/* ---- what the library's functions take */

struct many {
	int n[FFT_RANK], in[FFT_RANK], out[FFT_RANK];
};

static void shorten(struct many *m, const struct fft_shape *s)
{
	for (int i = 0; i < FFT_RANK; i++) {
		m->n[i] = (int)s->n[i];
		m->in[i] = (int)s->in.embed[i];
		m->out[i] = (int)s->out.embed[i];
	}
}

typedef int few_fn(int, int, int, int, size_t *); /* in one dimension, with a batch, or in two */
typedef int three_fn(int, int, int, int, int, size_t *);
typedef int many_fn(int, int, int *, int *, int, int, int *, int, int, int, int, size_t *);
typedef int many_64_fn(int, int, int64_t *, int64_t *, int64_t, int64_t, int64_t *, int64_t, int64_t, int, int64_t, size_t *);
typedef int xt_fn(int, int, int64_t *, int64_t *, int64_t, int64_t, int, int64_t *, int64_t, int64_t, int, int64_t, size_t *, int);

static int call_many(many_fn *f, int plan, const struct fft_shape *s, size_t *bytes)
{
	struct many m;

	shorten(&m, s);
	return f(plan, (int)s->rank, m.n, s->in.given ? m.in : NULL, (int)s->in.stride, (int)s->in.distance, s->out.given ? m.out : NULL,
		 (int)s->out.stride, (int)s->out.distance, (int)s->type, (int)s->batch, bytes);
}

static int call_many_64(void *f, int plan, struct fft_shape *s, size_t *bytes)
{
	int64_t *in = s->in.given ? s->in.embed : NULL, *out = s->out.given ? s->out.embed : NULL;
	many_64_fn *many = (many_64_fn *)f;
	xt_fn *xt = (xt_fn *)f;

	if (s->way == FFT_MANY_64)
		return many(plan, (int)s->rank, s->n, in, s->in.stride, s->in.distance, out, s->out.stride, s->out.distance,
			    (int)s->type, s->batch, bytes);
	return xt(plan, (int)s->rank, s->n, in, s->in.stride, s->in.distance, (int)s->in.type, out, s->out.stride, s->out.distance,
		  (int)s->out.type, s->batch, bytes, (int)s->type);
}

/* A function that makes a plan or tells the size of one: they take the same. */
static int describe(void *f, int plan, struct fft_shape *s, size_t *bytes)
{
	int n = (int)s->n[0], type = (int)s->type;

	if (!f)
		return FFT_NOT_SUPPORTED;
	switch (s->way) {
	case FFT_1D:
		return ((few_fn *)f)(plan, n, type, (int)s->batch, bytes);
	case FFT_2D:
		return ((few_fn *)f)(plan, n, (int)s->n[1], type, bytes);
	case FFT_3D:
		return ((three_fn *)f)(plan, n, (int)s->n[1], (int)s->n[2], type, bytes);
	case FFT_MANY:
		return call_many((many_fn *)f, plan, s, bytes);
	default:
		return call_many_64(f, plan, s, bytes);
	}
}

static int estimate(struct fft_shape *s, size_t *bytes)
{
	int n[] = { (int)s->n[0], (int)s->n[1], (int)s->n[2] }, type = (int)s->type;
	int (*one)(int, int, int, size_t *), (*two)(int, int, int, size_t *), (*three)(int, int, int, int, size_t *);
	int (*many)(int, int *, int *, int, int, int *, int, int, int, int, size_t *);
	struct many m;

	*(void **)&one = FFT("cufftEstimate1d");
	*(void **)&two = FFT("cufftEstimate2d");
	*(void **)&three = FFT("cufftEstimate3d");
	*(void **)&many = FFT("cufftEstimateMany");
	if (!one || !two || !three || !many || s->way > FFT_MANY)
		return FFT_NOT_SUPPORTED;
	shorten(&m, s);
	switch (s->way) {
	case FFT_1D:
		return one(n[0], type, (int)s->batch, bytes);
	case FFT_2D:
		return two(n[0], n[1], type, bytes);
	case FFT_3D:
		return three(n[0], n[1], n[2], type, bytes);
	default:
		return many((int)s->rank, m.n, s->in.given ? m.in : NULL, (int)s->in.stride, (int)s->in.distance,
			    s->out.given ? m.out : NULL, (int)s->out.stride, (int)s->out.distance, type, (int)s->batch, bytes);
	}
}

/* ---- plans */

static bool read_shape(const struct math_call *call, struct fft_shape *s)
{
	if (call->length != sizeof(*s))
		return false;
	memcpy(s, call->arguments, sizeof(*s));
	return s->way && s->way < FFT_WAYS && s->rank && s->rank <= FFT_RANK && !(s->set >> FFT_PROPERTIES);
}

static void give_bytes(struct math_call *call, uint64_t bytes)
{
	if (call->room - call->filled < sizeof(bytes))
		return;
	memcpy(call->values + call->filled, &bytes, sizeof(bytes));
	call->filled += sizeof(bytes);
}

static int destroy(int plan)
{
	int (*function)(int);

	*(void **)&function = FFT("cufftDestroy");
	return function ? function(plan) : FFT_NOT_SUPPORTED;
}

static int set_properties(int plan, const struct fft_shape *s)
{
	int (*set)(int, int, int64_t), status = FFT_OK;

	*(void **)&set = FFT("cufftSetPlanPropertyInt64");
	for (int i = 0; i < FFT_PROPERTIES && status == FFT_OK; i++)
		if (s->set >> i & 1)
			status = set ? set(plan, i + 1, s->properties[i]) : FFT_NOT_SUPPORTED;
	return status;
}

static int begin(const struct fft_shape *s, int *plan)
{
	int (*create)(int *), (*allocate)(int, int), status;

	*(void **)&create = FFT("cufftCreate");
	*(void **)&allocate = FFT("cufftSetAutoAllocation");
	if (!create || !allocate)
		return FFT_NOT_SUPPORTED;
	status = create(plan);
	if (status != FFT_OK)
		return status;
	status = allocate(*plan, 0);
	if (status == FFT_OK)
		status = set_properties(*plan, s);
	if (status != FFT_OK)
		destroy(*plan);
	return status;
}

static int make(struct math_call *call, int *plan)
{
	static const char *const names[FFT_WAYS] = { "", "cufftMakePlan1d", "cufftMakePlan2d", "cufftMakePlan3d", "cufftMakePlanMany",
						     "cufftMakePlanMany64", "cufftXtMakePlanMany" };
	struct fft_shape s;
	size_t bytes = 0;
	int status = read_shape(call, &s) ? begin(&s, plan) : FFT_INVALID_VALUE;

	if (status != FFT_OK)
		return status;
	status = describe(FFT(names[s.way]), *plan, &s, &bytes);
	if (status == FFT_OK)
		give_bytes(call, bytes);
	else
		destroy(*plan);
	return status;
}

struct plan {
	int number;
	uint64_t area;            /* that it has; 0: none yet */
};

static int end_plan(void *plan)
{
	int status = destroy(((struct plan *)plan)->number);

	free(plan);
	return status;
}

struct wk_math *wk_fft_plan(struct math_call *call, int *status)
{
	struct wk_math *math = calloc(1, sizeof(*math));
	struct plan *plan = calloc(1, sizeof(*plan));

	*status = math && plan ? make(call, &plan->number) : FFT_ALLOC_FAILED;
	if (*status == FFT_OK) {
		math->library = MATH_FFT_PLAN;
		math->handle = plan;
		math->destroy = end_plan;
		pthread_mutex_init(&math->lock, NULL);
		return math;
	}
	free(plan);
	free(math);
	return NULL;
}

/* ---- questions */

static int ask_size(struct fft_shape *s, size_t *bytes)
{
	static const char *const names[FFT_WAYS] = { "", "cufftGetSize1d", "cufftGetSize2d", "cufftGetSize3d", "cufftGetSizeMany",
						     "cufftGetSizeMany64", "cufftXtGetSizeMany" };
	int plan, status = begin(s, &plan);

	if (status != FFT_OK)
		return status;
	status = describe(FFT(names[s->way]), plan, s, bytes);
	destroy(plan);
	return status;
}

int wk_fft_call(struct math_call *call)
{
	struct fft_shape s;
	size_t bytes = 0;
	int status;

	if (call->function != FFT_SIZE && call->function != FFT_ESTIMATE)
		return FFT_NOT_SUPPORTED;
	if (!read_shape(call, &s))
		return FFT_INVALID_VALUE;
	status = call->function == FFT_SIZE ? ask_size(&s, &bytes) : estimate(&s, &bytes);
	if (status == FFT_OK)
		give_bytes(call, bytes);
	return status;
}

/* ---- execution */

static int execute(int plan, const struct fft_execute *e)
{
	static const char *const names[FFT_EXECUTIONS] = { "cufftXtExec", "cufftExecC2C", "cufftExecR2C", "cufftExecC2R",
							   "cufftExecZ2Z", "cufftExecD2Z", "cufftExecZ2D" };
	int (*directed)(int, void *, void *, int), (*plain)(int, void *, void *);
	void *function = FFT(names[e->execution]), *in = (void *)e->in, *out = (void *)e->out;

	if (!function)
		return FFT_NOT_SUPPORTED;
	*(void **)&directed = function;
	*(void **)&plain = function;
	if (e->execution == FFT_XT_EXEC || e->execution == FFT_C2C || e->execution == FFT_Z2Z)
		return directed(plan, in, out, (int)e->direction);
	return plain(plan, in, out);
}

int wk_fft_execute(struct math_call *call)
{
	int (*set_stream)(int, CUstream), (*set_area)(int, void *), status;
	struct plan *plan = call->math->handle;
	struct fft_execute e;

	*(void **)&set_stream = FFT("cufftSetStream");
	*(void **)&set_area = FFT("cufftSetWorkArea");
	if (call->function != FFT_EXECUTE || call->values || !set_stream || !set_area)
		return FFT_NOT_SUPPORTED;
	if (call->length != sizeof(e))
		return FFT_INVALID_VALUE;
	memcpy(&e, call->arguments, sizeof(e));
	if (e.execution >= FFT_EXECUTIONS)
		return FFT_INVALID_VALUE;
	status = set_stream(plan->number, call->stream);
	if (status == FFT_OK && e.area != plan->area)
		status = set_area(plan->number, (void *)e.area);
	if (status != FFT_OK)
		return status;
	plan->area = e.area;
	return execute(plan->number, &e);
}
