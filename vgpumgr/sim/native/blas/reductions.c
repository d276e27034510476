/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over vectors of all types, and the place of the largest or smallest element. */
#include <math.h>

#include "runs.h"

struct vector {
	int64_t n, inc;
	const void *data;
	int type;
};

/* The element where BLAS starts: with a negative distance the last one. */
static double complex element(const struct vector *v, int64_t i)
{
	int64_t start = v->inc < 0 ? (1 - v->n) * v->inc : 0;

	return bl_load(v->data, v->type, start + i * v->inc);
}

/* Sums of vectors whose distance is not positive are 0. */
static int64_t length(const struct vector *v)
{
	return v->inc > 0 ? v->n : 0;
}

static double nrm2(struct vector v)
{
	long double sum = 0;

	for (int64_t i = 0; i < length(&v); i++) {
		double complex e = element(&v, i);

		sum += (long double)creal(e) * creal(e) + (long double)cimag(e) * cimag(e);
	}
	return (double)sqrtl(sum);
}

static double size_of(double complex e)
{
	return fabs(creal(e)) + fabs(cimag(e));
}

static double asum(struct vector v)
{
	long double sum = 0;

	for (int64_t i = 0; i < length(&v); i++)
		sum += size_of(element(&v, i));
	return (double)sum;
}

static double complex dot(struct vector x, struct vector y, bool conjugate)
{
	double complex sum = 0;

	for (int64_t i = 0; i < x.n; i++) {
		double complex e = element(&x, i);

		sum += (conjugate ? conj(e) : e) * element(&y, i);
	}
	return sum;
}

/* Counted from 1; 0 for an empty vector. */
static int64_t extreme(struct vector v, bool largest)
{
	int64_t found = 0;
	double best = 0;

	for (int64_t i = 0; i < length(&v); i++) {
		double size = size_of(element(&v, i));

		if (found && !(largest ? size > best : size < best))
			continue;
		best = size;
		found = i + 1;
	}
	return found;
}

void run_nrm2(const struct call *c)
{
	const struct args_nrm2 *a = (const void *)c->args;

	bl_store(a->result, c->function->scalar, 0, nrm2((struct vector){ a->n, a->incx, a->x, c->function->element }));
}

void run_nrm2_ex(const struct call *c)
{
	const struct args_nrm2Ex *a = (const void *)c->args;

	bl_store(a->result, (int)a->resultType, 0, nrm2((struct vector){ a->n, a->incx, a->x, (int)a->xType }));
}

void run_asum(const struct call *c)
{
	const struct args_asum *a = (const void *)c->args;

	bl_store(a->result, c->function->scalar, 0, asum((struct vector){ a->n, a->incx, a->x, c->function->element }));
}

void run_asum_ex(const struct call *c)
{
	const struct args_asumEx *a = (const void *)c->args;

	bl_store(a->result, (int)a->resultType, 0, asum((struct vector){ a->n, a->incx, a->x, (int)a->xType }));
}

static void put_dot(const struct call *c, bool conjugate)
{
	const struct args_dot *a = (const void *)c->args;
	int type = c->function->element;

	bl_store(a->result, type, 0,
		 dot((struct vector){ a->n, a->incx, a->x, type }, (struct vector){ a->n, a->incy, a->y, type }, conjugate));
}

void run_dot(const struct call *c)
{
	put_dot(c, false);
}

void run_dotc(const struct call *c)
{
	put_dot(c, true);
}

static void put_dot_ex(const struct call *c, bool conjugate)
{
	const struct args_dotEx *a = (const void *)c->args;

	bl_store(a->result, (int)a->resultType, 0,
		 dot((struct vector){ a->n, a->incx, a->x, (int)a->xType },
		     (struct vector){ a->n, a->incy, a->y, (int)a->yType }, conjugate));
}

void run_dot_ex(const struct call *c)
{
	put_dot_ex(c, false);
}

void run_dotc_ex(const struct call *c)
{
	put_dot_ex(c, true);
}

static void put_place(const struct call *c, void *result, int64_t place)
{
	if (c->wide)
		*(int64_t *)result = place;
	else
		*(int *)result = (int)place;
}

static void put_extreme(const struct call *c, bool largest)
{
	const struct args_amax *a = (const void *)c->args;

	put_place(c, a->result, extreme((struct vector){ a->n, a->incx, a->x, c->function->element }, largest));
}

void run_amax(const struct call *c)
{
	put_extreme(c, true);
}

void run_amin(const struct call *c)
{
	put_extreme(c, false);
}

static void put_extreme_ex(const struct call *c, bool largest)
{
	const struct args_amaxEx *a = (const void *)c->args;

	put_place(c, a->result, extreme((struct vector){ a->n, a->incx, a->x, (int)a->xType }, largest));
}

void run_amax_ex(const struct call *c)
{
	put_extreme_ex(c, true);
}

void run_amin_ex(const struct call *c)
{
	put_extreme_ex(c, false);
}
