/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation. All is computed in double precision on copies without gaps, and rounded once.
 *
 * The reserved space of training has, in the persistent mode, each parameter's mean and deviation, and, with an activation, a
 * bit for each element that the activation has let through: the backward pass reads both there.
 */
#include <math.h>
#include <stdlib.h>

#include "norm.h"

static bool has_activation(const struct dn_norm *n)
{
	return n->ops != DN_NORM_ONLY;
}

static size_t statistics_bytes(const struct dn_norm *n)
{
	return n->mode == DN_SPATIAL_PERSISTENT ? 2 * (size_t)n->parameters * sizeof(double) : 0;
}

size_t dn_norm_workspace(const struct dn_norm *n)
{
	return statistics_bytes(n);
}

size_t dn_norm_reserve(const struct dn_norm *n)
{
	return statistics_bytes(n) + (has_activation(n) ? ((size_t)dn_elements(&n->x.tensor) + 7) / 8 : 0);
}

static unsigned char *mask_of(const struct dn_norm *n)
{
	return (unsigned char *)n->reserve + statistics_bytes(n);
}

/* Which parameter an element has. */
static int64_t parameter_of(const struct dn_norm *n, int64_t element)
{
	return n->mode == DN_PER_ACTIVATION ? element % n->parameters : element / n->spatial % n->channels;
}

static bool reach(struct dn_norm *n)
{
	const struct dn_placed *const tensors[] = { &n->x, &n->y, &n->z, &n->dy, &n->dz, &n->dx };
	const void *const parameters[] = { n->scale, n->bias, n->running_mean, n->running_variance, n->mean, n->deviation,
					   n->d_scale, n->d_bias };

	for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
		if (!dn_placed_reach(&n->work, tensors[i]))
			return false;
	for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
		if (parameters[i] && !bl_reach(&n->work, parameters[i], n->parameters * (int64_t)dn_type_bytes(n->type)))
			return false;
	return bl_reach(&n->work, n->workspace, n->workspace ? (int64_t)dn_norm_workspace(n) : 0) &&
	       bl_reach(&n->work, n->reserve, n->reserve ? (int64_t)dn_norm_reserve(n) : 0);
}

/* Packed values while it runs: elements of x, and of what is made; two numbers for each parameter. */
struct scratch {
	int64_t elements;
	double *x, *other, *made, *first, *second;
	void *owned; /* the parameters' memory where there is no workspace */
};

static bool begin(const struct dn_norm *n, struct scratch *s)
{
	size_t elements = (size_t)dn_elements(&n->x.tensor), parameters = (size_t)n->parameters;

	s->elements = (int64_t)elements;
	s->x = malloc(elements * sizeof(double));
	s->other = calloc(elements, sizeof(double));
	s->made = malloc(elements * sizeof(double));
	s->owned = calloc(2 * parameters, sizeof(double));
	s->first = dn_norm_workspace(n) && n->workspace ? n->workspace : s->owned;
	if (!s->x || !s->other || !s->made || !s->owned)
		return false;
	s->second = s->first + parameters;
	dn_pack(&n->x.tensor, n->x.data, true, s->x);
	return true;
}

static void end(struct scratch *s)
{
	free(s->x);
	free(s->other);
	free(s->made);
	free(s->owned);
}

/* Mean and biased variance of each parameter, over its elements. */
static void measure(const struct dn_norm *n, const struct scratch *s, double *mean, double *variance)
{
	double count = (double)(s->elements / n->parameters);

	for (int64_t p = 0; p < n->parameters; p++)
		mean[p] = variance[p] = 0;
	for (int64_t i = 0; i < s->elements; i++)
		mean[parameter_of(n, i)] += s->x[i] / count;
	for (int64_t i = 0; i < s->elements; i++) {
		int64_t p = parameter_of(n, i);
		double distance = s->x[i] - mean[p];

		variance[p] += distance * distance / count;
	}
}

/* Running statistics have the unbiased variance. */
static void remember(const struct dn_norm *n, int64_t p, double count, double mean, double variance)
{
	double unbiased = count > 1 ? variance * count / (count - 1) : variance, deviation = 1 / sqrt(variance + n->epsilon);

	if (n->running_mean) {
		dn_put(n->running_mean, n->type, p, (1 - n->factor) * dn_get(n->running_mean, n->type, p) + n->factor * mean);
		dn_put(n->running_variance, n->type, p,
		       (1 - n->factor) * dn_get(n->running_variance, n->type, p) + n->factor * unbiased);
	}
	if (n->mean) {
		dn_put(n->mean, n->type, p, mean);
		dn_put(n->deviation, n->type, p, deviation);
	}
	if (n->reserve && statistics_bytes(n)) {
		((double *)n->reserve)[p] = mean;
		((double *)n->reserve)[n->parameters + p] = deviation;
	}
}

/* The mean and what to multiply with, by parameter. */
static void take_statistics(const struct dn_norm *n, const struct scratch *s)
{
	double count = (double)(s->elements / n->parameters);

	if (n->kind == DN_NORM_TRAIN)
		measure(n, s, s->first, s->second);
	for (int64_t p = 0; p < n->parameters; p++) {
		if (n->kind == DN_NORM_TRAIN) {
			remember(n, p, count, s->first[p], s->second[p]);
		} else {
			s->first[p] = dn_get(n->mean, n->type, p);
			s->second[p] = dn_get(n->deviation, n->type, p); /* at inference it is the variance */
		}
		s->second[p] = 1 / sqrt(s->second[p] + n->epsilon);
	}
}

static void forward(const struct dn_norm *n, struct scratch *s)
{
	take_statistics(n, s);
	if (n->z.tensor.nd)
		dn_pack(&n->z.tensor, n->z.data, true, s->other);
	for (int64_t i = 0; has_activation(n) && n->reserve && i < (s->elements + 7) / 8; i++)
		mask_of(n)[i] = 0;
	for (int64_t i = 0; i < s->elements; i++) {
		int64_t p = parameter_of(n, i);
		double value = (s->x[i] - s->first[p]) * s->second[p] * dn_get(n->scale, n->type, p) + dn_get(n->bias, n->type, p);

		value += s->other[i];
		if (has_activation(n) && value <= 0)
			value = 0;
		else if (has_activation(n) && n->reserve)
			mask_of(n)[i / 8] |= (unsigned char)(1 << i % 8);
		s->made[i] = value;
	}
	dn_unpack(&n->y.tensor, n->y.data, true, s->made, n->alpha, n->beta);
}

/* What training has kept, or measured again. */
static void recall(const struct dn_norm *n, const struct scratch *s, double *mean, double *deviation)
{
	const double *kept = n->reserve && statistics_bytes(n) ? n->reserve : NULL;

	if (!n->mean && !kept)
		measure(n, s, mean, deviation);
	for (int64_t p = 0; p < n->parameters; p++) {
		if (n->mean) {
			mean[p] = dn_get(n->mean, n->type, p);
			deviation[p] = dn_get(n->deviation, n->type, p);
		} else if (kept) {
			mean[p] = kept[p];
			deviation[p] = kept[n->parameters + p];
		} else {
			deviation[p] = 1 / sqrt(deviation[p] + n->epsilon);
		}
	}
}

static void store_gradient(const struct dn_norm *n, void *place, int64_t p, double value)
{
	value *= n->parameter_alpha;
	if (n->parameter_beta != 0)
		value += n->parameter_beta * dn_get(place, n->type, p);
	dn_put(place, n->type, p, value);
}

/* Sums of the gradient, plain and with the normalised x: the parameters' gradients. */
static void backward(const struct dn_norm *n, struct scratch *s, double *mean, double *deviation)
{
	double count = (double)(s->elements / n->parameters);

	recall(n, s, mean, deviation);
	dn_pack(&n->dy.tensor, n->dy.data, true, s->other);
	for (int64_t p = 0; p < n->parameters; p++)
		s->first[p] = s->second[p] = 0;
	for (int64_t i = 0; i < s->elements; i++) {
		int64_t p = parameter_of(n, i);

		if (has_activation(n) && !(mask_of(n)[i / 8] >> i % 8 & 1))
			s->other[i] = 0;
		s->x[i] = (s->x[i] - mean[p]) * deviation[p];
		s->first[p] += s->other[i];
		s->second[p] += s->other[i] * s->x[i];
	}
	for (int64_t i = 0; i < s->elements; i++) {
		int64_t p = parameter_of(n, i);
		double rest = s->other[i] - (s->first[p] + s->x[i] * s->second[p]) / count;

		s->made[i] = dn_get(n->scale, n->type, p) * deviation[p] * rest;
	}
	for (int64_t p = 0; p < n->parameters; p++) {
		store_gradient(n, n->d_bias, p, s->first[p]);
		store_gradient(n, n->d_scale, p, s->second[p]);
	}
	dn_unpack(&n->dx.tensor, n->dx.data, true, s->made, n->alpha, n->beta);
	if (n->dz.tensor.nd)
		dn_unpack(&n->dz.tensor, n->dz.data, true, s->other, n->alpha, n->beta);
}

void dn_norm_run(struct work *work)
{
	struct dn_norm *n = (struct dn_norm *)work;
	struct scratch s = { 0 };
	double *kept = calloc(2 * (size_t)n->parameters, sizeof *kept);

	work->wild = false;
	if (kept && reach(n) && begin(n, &s)) {
		if (n->kind == DN_NORM_BACKWARD)
			backward(n, &s, kept, kept + n->parameters);
		else
			forward(n, &s);
	}
	end(&s);
	free(kept);
}
