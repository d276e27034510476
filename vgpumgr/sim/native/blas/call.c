/* SPDX-License-Identifier: Apache-2.0 */
/* A call: arguments checked, scalars copied, work posted; later the memory checked, and the family's function called. */
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* The type of a scalar argument. */
static int scalar_type(const struct function *f, const int64_t *args, int i)
{
	const struct argument *a = &f->family->args[i];

	switch (a->scalar) {
	case SCALAR_F32:
		return BL_R_32F;
	case SCALAR_F64:
		return BL_R_64F;
	case SCALAR_ARGUMENT:
		return (int)args[a->from];
	case SCALAR_COMPUTE:
		return bl_call_scale(f, args);
	default:
		return f->scalar;
	}
}

static size_t scalar_bytes(const struct call *c, int i)
{
	const struct argument *a = &c->function->family->args[i];

	if (a->scalar == SCALAR_INT)
		return c->wide ? sizeof(int64_t) : sizeof(int);
	return bl_size(scalar_type(c->function, c->args, i)) * (size_t)(a->count ? a->count : 1);
}

static bool is_scalar(enum argument_kind kind)
{
	return kind == ARG_IN || kind == ARG_INOUT || kind == ARG_OUT;
}

/* Scalars on the host are read now; results on the host are waited for. */
static bool take_scalars(struct call *c)
{
	const struct family *family = c->function->family;
	bool wait = false;

	for (int i = 0, n = 0; i < family->n; i++) {
		enum argument_kind kind = family->args[i].kind;

		if (kind == ARG_OUT || kind == ARG_INOUT)
			wait = true;
		if (kind != ARG_IN || c->scalars_on_device)
			continue;
		memcpy(c->scalars[n], (const void *)c->args[i], scalar_bytes(c, i));
		c->args[i] = (int64_t)c->scalars[n++];
	}
	return wait && !c->scalars_on_device;
}

static bool reach_scalars(struct call *c)
{
	const struct family *family = c->function->family;

	for (int i = 0; c->scalars_on_device && i < family->n; i++)
		if (is_scalar(family->args[i].kind) &&
		    !bl_reach(&c->work, (const void *)c->args[i], (int64_t)scalar_bytes(c, i)))
			return false;
	return true;
}

static bool is_zero(const struct call *c, int i)
{
	return i >= 0 && bl_load((const void *)c->args[i], scalar_type(c->function, c->args, i), 0) == 0;
}

static bool reach_operand(struct call *c, const struct operand *o)
{
	int64_t size = (int64_t)bl_size(o->element), batch = bl_batch(c);
	int64_t bytes = o->rows > 0 && o->cols > 0 ? ((o->cols - 1) * o->ld + o->rows) * size : 0;
	const char *place = (const char *)c->args[o->arg];

	if (!bytes || is_zero(c, o->unless))
		return true;
	if (o->array && !bl_reach(&c->work, place, batch * (int64_t)sizeof(void *)))
		return false;
	for (int64_t i = 0; i < batch && (o->array || o->stride || !i); i++) {
		const char *p = o->array ? bl_entry(place, i) : place + i * o->stride * size;

		if (!bl_reach(&c->work, p, bytes))
			return false;
	}
	return true;
}

static bool is_empty(const struct call *c)
{
	const struct family *family = c->function->family;

	return family->batch >= 0 && c->args[family->batch] == 0;
}

static void run_call(struct work *work)
{
	struct call *c = (struct call *)work;
	const struct family *family = c->function->family;
	struct operand operands[MAX_OPERANDS], *end;

	work->wild = false;
	if (is_empty(c) || !reach_scalars(c))
		return;
	end = family->operands(c->args, c->function, operands);
	for (const struct operand *o = operands; o < end; o++)
		if (!reach_operand(c, o))
			return;
	family->run(c);
}

static void release_call(struct work *work)
{
	free(work);
}

/* As large as BLAS can count. */
static bool fits(const struct function *f, const int64_t *args)
{
	for (int i = 0; i < f->family->n; i++) {
		enum argument_kind kind = f->family->args[i].kind;

		if ((kind == ARG_SIZE || kind == ARG_COUNT || kind == ARG_LD || kind == ARG_INC || kind == ARG_STEP) &&
		    (args[i] > INT32_MAX || args[i] < INT32_MIN))
			return false;
	}
	return true;
}

/* Results of the host that are always written: nothing was wrong with the arguments. */
static void write_info(const struct family *family, const int64_t *args)
{
	for (int i = 0; i < family->n; i++)
		if (family->args[i].kind == ARG_HOST)
			*(int *)args[i] = 0;
}

static int check(const struct function *f, const int64_t *args)
{
	int status = f->family->check(args, f);

	if (status == BL_SUCCESS)
		status = bl_check_types(f, args);
	if (status == BL_SUCCESS && !fits(f, args))
		status = BL_NOT_SUPPORTED;
	return status;
}

static int make(const struct function *f, bool wide, const int64_t *args, struct call **out)
{
	struct call *c = calloc(1, sizeof *c);

	if (!c)
		return BL_ALLOC_FAILED;
	c->work = (struct work){ .run = run_call, .release = release_call };
	c->function = f;
	c->wide = wide;
	memcpy(c->args, args, (size_t)f->family->n * sizeof *args);
	*out = c;
	return BL_SUCCESS;
}

int bl_call(void *handle, const struct function *f, bool wide, const int64_t *args)
{
	struct bl_handle *h = handle;
	struct call *c;
	bool wait;
	int status;

	if (!bl_handle_valid(h))
		return BL_NOT_INITIALIZED;
	status = check(f, args);
	if (status == BL_SUCCESS)
		status = bl_handle_enter(h);
	if (status == BL_SUCCESS)
		status = make(f, wide, args, &c);
	if (status != BL_SUCCESS)
		return status;
	c->work.context = h->context;
	c->scalars_on_device = h->pointer_mode == BL_POINTER_DEVICE;
	wait = take_scalars(c);
	write_info(f->family, args);
	status = bl_call_routine(c);
	if (status != BL_SUCCESS) {
		free(c);
		return status;
	}
	return bl_post(&c->work, h->stream, wait);
}
