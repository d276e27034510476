/* SPDX-License-Identifier: Apache-2.0 */
/* Executions as work on a stream. */
#include <stdlib.h>
#include <string.h>

#include "fft.h"

struct execution {
	struct work work;
	struct ft_shape shape;
	int direction;
	const void *in, *area;
	void *out;
	size_t area_bytes;
};

/* ---- on the runner's thread */

/* Between memory and the buffer, whose rows are whole. */
static void walk(const struct execution *e, const struct ft_side *side, double complex *data, bool store)
{
	const struct ft_shape *s = &e->shape;
	int64_t row = 0;

	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t x = 0; x < s->n[0]; x++)
			for (int64_t y = 0; y < s->n[1]; y++, row++)
				for (int64_t z = 0; z < side->sizes[2]; z++) {
					double complex *value = &data[row * s->n[2] + z];
					int64_t at = ft_side_index(side, b, x, y, z);

					if (store)
						bl_store(e->out, side->type, at, *value);
					else
						*value = bl_load(e->in, side->type, at);
				}
}

static void run(struct work *work)
{
	struct execution *e = (struct execution *)work;
	const struct ft_shape *s = &e->shape;
	double complex *data;

	work->wild = false;
	if (!bl_reach(work, e->in, ft_side_bytes(&s->in, s->batch)) || !bl_reach(work, e->out, ft_side_bytes(&s->out, s->batch)) ||
	    !bl_reach(work, e->area, (int64_t)e->area_bytes))
		return;
	data = calloc((size_t)(s->batch * s->n[0] * s->n[1] * s->n[2]), sizeof *data);
	if (!data)
		return;
	walk(e, &s->in, data, false);
	if (ft_transform(s, e->direction, data) == FT_SUCCESS)
		walk(e, &s->out, data, true);
	free(data);
}

static void release(struct work *work)
{
	free(work);
}

/* ---- calls */

static int post(const struct ft_plan *p, const void *in, void *out, int direction)
{
	struct bl_context *context;
	int status = ft_status(bl_context_current(&context));
	struct execution *e;

	if (status != FT_SUCCESS)
		return status;
	e = calloc(1, sizeof *e);
	if (!e)
		return FT_ALLOC_FAILED;
	*e = (struct execution){ .work = { .run = run, .release = release, .context = context }, .shape = p->shape,
				 .direction = direction, .in = in, .out = out, .area = (const void *)p->area, .area_bytes = p->bytes };
	ft_shape_place(&e->shape, in == out);
	return ft_status(bl_post(&e->work, p->stream, false));
}

/* type: of the function; 0: that of the plan */
static int execute(int plan, int type, const void *in, void *out, int direction)
{
	const struct ft_plan *p = ft_plan_find(plan);

	if (!p || !p->made)
		return FT_INVALID_PLAN;
	if (!in || !out || (direction != FT_FORWARD && direction != FT_INVERSE))
		return FT_INVALID_VALUE;
	if (type && type != ft_shape_type(&p->shape))
		return FT_INVALID_VALUE;
	if (p->bytes && !p->area)
		return FT_NO_WORKSPACE;
	if (!bl_is_complex(p->shape.in.type))
		direction = FT_FORWARD;
	else if (!bl_is_complex(p->shape.out.type))
		direction = FT_INVERSE;
	return post(p, in, out, direction);
}

int cufftXtExec(int plan, void *in, void *out, int direction)
{
	return execute(plan, 0, in, out, direction);
}

int cufftExecC2C(int plan, void *in, void *out, int direction)
{
	return execute(plan, FT_C2C, in, out, direction);
}

int cufftExecZ2Z(int plan, void *in, void *out, int direction)
{
	return execute(plan, FT_Z2Z, in, out, direction);
}

int cufftExecR2C(int plan, void *in, void *out)
{
	return execute(plan, FT_R2C, in, out, FT_FORWARD);
}

int cufftExecC2R(int plan, void *in, void *out)
{
	return execute(plan, FT_C2R, in, out, FT_INVERSE);
}

int cufftExecD2Z(int plan, void *in, void *out)
{
	return execute(plan, FT_D2Z, in, out, FT_FORWARD);
}

int cufftExecZ2D(int plan, void *in, void *out)
{
	return execute(plan, FT_Z2D, in, out, FT_INVERSE);
}
