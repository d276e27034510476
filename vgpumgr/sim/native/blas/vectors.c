/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of all types, changed element by element. */
#include "runs.h"

static int64_t place(int64_t n, int64_t inc, int64_t i)
{
	return (inc < 0 ? (1 - n) * inc : 0) + i * inc;
}

void run_scal_ex(const struct call *c)
{
	const struct args_scalEx *a = (const void *)c->args;
	double complex alpha = bl_load(a->alpha, (int)a->alphaType, 0);

	for (int64_t i = 0; a->incx > 0 && i < a->n; i++)
		bl_store(a->x, (int)a->xType, i * a->incx, alpha * bl_load(a->x, (int)a->xType, i * a->incx));
}

void run_axpy_ex(const struct call *c)
{
	const struct args_axpyEx *a = (const void *)c->args;
	double complex alpha = bl_load(a->alpha, (int)a->alphaType, 0);
	int type = (int)a->xType;

	for (int64_t i = 0; i < a->n; i++) {
		int64_t at = place(a->n, a->incy, i);
		double complex x = bl_load(a->x, type, place(a->n, a->incx, i));

		bl_store(a->y, type, at, alpha * x + bl_load(a->y, type, at));
	}
}

void run_copy_ex(const struct call *c)
{
	const struct args_copyEx *a = (const void *)c->args;
	int type = (int)a->xType;

	for (int64_t i = 0; i < a->n; i++)
		bl_store(a->y, type, place(a->n, a->incy, i), bl_load(a->x, type, place(a->n, a->incx, i)));
}

void run_swap_ex(const struct call *c)
{
	const struct args_swapEx *a = (const void *)c->args;
	int type = (int)a->xType;

	for (int64_t i = 0; i < a->n; i++) {
		int64_t at_x = place(a->n, a->incx, i), at_y = place(a->n, a->incy, i);
		double complex x = bl_load(a->x, type, at_x);

		bl_store(a->x, type, at_x, bl_load(a->y, type, at_y));
		bl_store(a->y, type, at_y, x);
	}
}

void run_rot_ex(const struct call *c)
{
	const struct args_rotEx *a = (const void *)c->args;
	int type = (int)a->xType;
	double cosine = creal(bl_load(a->c, (int)a->csType, 0));
	double complex sine = bl_load(a->s, (int)a->csType, 0);

	for (int64_t i = 0; i < a->n; i++) {
		int64_t at_x = place(a->n, a->incx, i), at_y = place(a->n, a->incy, i);
		double complex x = bl_load(a->x, type, at_x), y = bl_load(a->y, type, at_y);

		bl_store(a->x, type, at_x, cosine * x + sine * y);
		bl_store(a->y, type, at_y, cosine * y - conj(sine) * x);
	}
}

/* The matrix H of the parameter: which of its elements are given depends on the flag. */
static void read_h(const void *param, int type, double h[4])
{
	double flag = creal(bl_load(param, type, 0));

	for (int i = 0; i < 4; i++)
		h[i] = creal(bl_load(param, type, i + 1)); /* h11, h21, h12, h22 */
	if (flag == -2.0 || flag == 0.0)
		h[0] = h[3] = 1;
	if (flag == -2.0)
		h[1] = h[2] = 0;
	if (flag == 1.0) {
		h[1] = -1;
		h[2] = 1;
	}
}

void run_rotm_ex(const struct call *c)
{
	const struct args_rotmEx *a = (const void *)c->args;
	int type = (int)a->xType;
	double h[4];

	read_h(a->param, (int)a->paramType, h);
	for (int64_t i = 0; i < a->n; i++) {
		int64_t at_x = place(a->n, a->incx, i), at_y = place(a->n, a->incy, i);
		double complex x = bl_load(a->x, type, at_x), y = bl_load(a->y, type, at_y);

		bl_store(a->x, type, at_x, h[0] * x + h[2] * y);
		bl_store(a->y, type, at_y, h[1] * x + h[3] * y);
	}
}
