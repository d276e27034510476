/* SPDX-License-Identifier: Apache-2.0 */
/* Calls before graphs that are one pointwise operation: activations, sums, constants. */
#include "builder.h"
#include "classic.h"
#include "exports.h"

/* Modes of pointwise operations (pointwise.c). */
enum { IDENTITY = 21, RELU = 100, TANH = 101, SIGMOID = 102, ELU = 103, SWISH = 106, GRADIENT = 100 };

static const struct dn_setting plain = { .engine = 1, .tiles = 1 };

/* An activation as a pointwise operation, with its coefficient. */
static struct dn_operation activation_of(const struct dn_activation_descriptor *a, int type, double alpha, double beta)
{
	static const int modes[] = { [DN_ACT_SIGMOID] = SIGMOID, [DN_ACT_RELU] = RELU, [DN_ACT_TANH] = TANH,
				     [DN_ACT_CLIPPED_RELU] = RELU, [DN_ACT_ELU] = ELU, [DN_ACT_IDENTITY] = IDENTITY,
				     [DN_ACT_SWISH] = SWISH };
	struct dn_operation o = dn_builder_map(modes[a->mode], type, alpha, beta);

	if (a->mode == DN_ACT_CLIPPED_RELU)
		o.pointwise.upper = a->coefficient;
	o.pointwise.elu = a->coefficient;
	o.pointwise.swish = a->swish_beta;
	return o;
}

static bool is_alike(const struct dn_tensor *a, const struct dn_tensor *b)
{
	if (!a || !b || a->nd != b->nd || a->type != b->type)
		return false;
	for (int i = 0; i < a->nd; i++)
		if (a->dims[i] != b->dims[i])
			return false;
	return true;
}

int cudnnActivationForward(void *handle, const void *activation, const void *alpha, const void *x_desc, const void *x,
			   const void *beta, const void *y_desc, void *y)
{
	const struct dn_activation_descriptor *a = dn_object_find(activation, DN_ACTIVATION);
	const struct dn_tensor *from = dn_tensor_find(x_desc), *to = dn_tensor_find(y_desc);
	struct dn_tensor in, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!a || !is_alike(from, to) || !x || !y || !alpha || !beta)
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the tensors differ");
	if (a->mode == DN_ACT_IDENTITY)
		return dn_fail(DN_BAD_PARAM, "the identity is for fused convolutions only");
	o = activation_of(a, from->type, dn_scale(alpha, from->type), dn_scale(beta, from->type));
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, from, x);
	out = dn_builder_tensor(&b, 1, to, y);
	dn_builder_add(&b, &o, &in, NULL, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}

int cudnnActivationBackward(void *handle, const void *activation, const void *alpha, const void *y_desc, const void *y,
			    const void *dy_desc, const void *dy, const void *x_desc, const void *x, const void *beta,
			    const void *dx_desc, void *dx)
{
	const struct dn_activation_descriptor *a = dn_object_find(activation, DN_ACTIVATION);
	const struct dn_tensor *from = dn_tensor_find(x_desc), *above = dn_tensor_find(dy_desc), *to = dn_tensor_find(dx_desc);
	struct dn_tensor in, gradient, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!a || !is_alike(from, to) || !is_alike(from, above) || !is_alike(from, dn_tensor_find(y_desc)))
		return dn_fail(DN_BAD_PARAM, "a descriptor is missing, or the tensors differ");
	if (!x || !y || !dy || !dx || !alpha || !beta || a->mode == DN_ACT_IDENTITY)
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the identity");
	o = activation_of(a, from->type, dn_scale(alpha, from->type), dn_scale(beta, from->type));
	o.pointwise.mode += GRADIENT;
	dn_builder_begin(&b, 1);
	gradient = dn_builder_tensor(&b, 0, above, dy);
	in = dn_builder_tensor(&b, 1, from, x);
	out = dn_builder_tensor(&b, 2, to, dx);
	dn_builder_add(&b, &o, &gradient, &in, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}

/* C = alpha * A + beta * C, where dimensions of A may be 1. */
int cudnnAddTensor(void *handle, const void *alpha, const void *a_desc, const void *a, const void *beta, const void *c_desc, void *c)
{
	const struct dn_tensor *from = dn_tensor_find(a_desc), *to = dn_tensor_find(c_desc);
	struct dn_tensor in, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!from || !to || !a || !c || !alpha || !beta || from->nd != to->nd || from->type != to->type)
		return dn_fail(DN_BAD_PARAM, "an argument is missing, or the tensors differ");
	for (int i = 0; i < to->nd; i++)
		if (from->dims[i] != to->dims[i] && from->dims[i] != 1)
			return dn_fail(DN_BAD_PARAM, "the tensor that is added does not fit");
	o = dn_builder_map(IDENTITY, to->type, dn_scale(alpha, to->type), dn_scale(beta, to->type));
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, from, a);
	out = dn_builder_tensor(&b, 1, to, c);
	dn_builder_add(&b, &o, &in, NULL, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}

int cudnnSetTensor(void *handle, const void *y_desc, void *y, const void *value)
{
	const struct dn_tensor *to = dn_tensor_find(y_desc);
	struct dn_tensor in, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!to || !y || !value)
		return dn_fail(DN_BAD_PARAM, "an argument is missing");
	o = dn_builder_map(IDENTITY, to->type, 1, 0);
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, to, value);
	in.by_value = true;
	for (int i = 0; i < in.nd; i++)
		in.dims[i] = 1;
	out = dn_builder_tensor(&b, 1, to, y);
	dn_builder_add(&b, &o, &in, NULL, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}

int cudnnScaleTensor(void *handle, const void *y_desc, void *y, const void *alpha)
{
	const struct dn_tensor *to = dn_tensor_find(y_desc);
	struct dn_tensor in, out;
	struct dn_operation o;
	struct dn_builder b;

	if (!to || !y || !alpha)
		return dn_fail(DN_BAD_PARAM, "an argument is missing");
	o = dn_builder_map(IDENTITY, to->type, dn_scale(alpha, to->type), 0);
	dn_builder_begin(&b, 1);
	in = dn_builder_tensor(&b, 0, to, y); /* what is read and what is written have an identity each */
	out = dn_builder_tensor(&b, 1, to, y);
	dn_builder_add(&b, &o, &in, NULL, NULL, &out);
	return dn_builder_post(&b, handle, &plain, NULL);
}
