/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, its logarithm and their gradients. */
#include <math.h>
#include <stdlib.h>

#include "classic.h"
#include "exports.h"
#include "layer.h"

enum { FAST = 0, ACCURATE = 1, LOGARITHM = 2 };
enum { INSTANCE = 0, CHANNEL = 1 };

struct softmax {
	struct work work;
	int algorithm;
	int64_t groups, members, distance; /* elements of one group are so far apart */
	struct dn_placed in, other, out; /* forward: x, nothing, y; backward: y, dy, dx */
	double alpha, beta;
};

/* Where a group begins: groups that lie side by side take turns. */
static int64_t start_of(const struct softmax *s, int64_t group)
{
	return group / s->distance * s->distance * s->members + group % s->distance;
}

static void forward(const struct softmax *s, double *x)
{
	for (int64_t g = 0; g < s->groups; g++) {
		int64_t at = start_of(s, g);
		double most = -INFINITY, sum = 0;

		for (int64_t i = 0; i < s->members; i++)
			most = fmax(most, x[at + i * s->distance]);
		for (int64_t i = 0; i < s->members; i++)
			sum += exp(x[at + i * s->distance] - most);
		for (int64_t i = 0; i < s->members; i++) {
			double *value = &x[at + i * s->distance];

			*value = s->algorithm == LOGARITHM ? *value - most - log(sum) : exp(*value - most) / sum;
		}
	}
}

static void backward(const struct softmax *s, double *y, const double *dy)
{
	bool logarithm = s->algorithm == LOGARITHM;

	for (int64_t g = 0; g < s->groups; g++) {
		int64_t at = start_of(s, g);
		double sum = 0;

		for (int64_t i = 0; i < s->members; i++)
			sum += dy[at + i * s->distance] * (logarithm ? 1 : y[at + i * s->distance]);
		for (int64_t i = 0; i < s->members; i++) {
			double *value = &y[at + i * s->distance], above = dy[at + i * s->distance];

			*value = logarithm ? above - exp(*value) * sum : *value * (above - sum);
		}
	}
}

static void run(struct work *work)
{
	struct softmax *s = (struct softmax *)work;
	double *in, *other = NULL;

	work->wild = false;
	if (!dn_placed_reach(work, &s->in) || !dn_placed_reach(work, &s->other) || !dn_placed_reach(work, &s->out))
		return;
	in = dn_placed_read(&s->in);
	if (s->other.tensor.nd)
		other = dn_placed_read(&s->other);
	if (in && other)
		backward(s, in, other);
	else if (in && !s->other.tensor.nd)
		forward(s, in);
	if (in && (other || !s->other.tensor.nd))
		dn_unpack(&s->out.tensor, s->out.data, true, in, s->alpha, s->beta);
	free(in);
	free(other);
}

static int post(void *handle, struct softmax *s, int mode, const void *alpha, const void *beta)
{
	const struct dn_tensor *t = &s->in.tensor;

	if (s->algorithm < FAST || s->algorithm > LOGARITHM || mode < INSTANCE || mode > CHANNEL || !alpha || !beta)
		return dn_fail(DN_BAD_PARAM, "no such algorithm or mode, or a scale is missing");
	if (!dn_placed_alike(&s->in, &s->out) || (s->other.tensor.nd && !dn_placed_alike(&s->in, &s->other)))
		return dn_fail(DN_BAD_PARAM, "the tensors differ");
	s->members = mode == CHANNEL ? t->dims[1] : dn_elements(t) / t->dims[0];
	s->groups = dn_elements(t) / s->members;
	s->distance = mode == CHANNEL ? dn_elements(t) / t->dims[0] / t->dims[1] : 1;
	s->alpha = dn_scale(alpha, t->type);
	s->beta = dn_scale(beta, t->type);
	return dn_layer_post(handle, &s->work, sizeof *s, run);
}

int cudnnSoftmaxForward(void *handle, int algorithm, int mode, const void *alpha, const void *x_desc, const void *x, const void *beta,
			const void *y_desc, void *y)
{
	struct softmax s = { .algorithm = algorithm };
	int status = dn_place(&s.in, x_desc, x, true);

	if (status == DN_SUCCESS)
		status = dn_place(&s.out, y_desc, y, true);
	return status == DN_SUCCESS ? post(handle, &s, mode, alpha, beta) : status;
}

int cudnnSoftmaxBackward(void *handle, int algorithm, int mode, const void *alpha, const void *y_desc, const void *y,
			 const void *dy_desc, const void *dy, const void *beta, const void *dx_desc, void *dx)
{
	struct softmax s = { .algorithm = algorithm };
	int status = dn_place(&s.in, y_desc, y, true);

	if (status == DN_SUCCESS)
		status = dn_place(&s.other, dy_desc, dy, true);
	if (status == DN_SUCCESS)
		status = dn_place(&s.out, dx_desc, dx, true);
	return status == DN_SUCCESS ? post(handle, &s, mode, alpha, beta) : status;
}
