/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation: arguments are checked, copied and posted. */
#include <string.h>

#include "classic.h"
#include "exports.h"
#include "norm.h"

/* The parameters' tensor for one of this shape. */
static void derive(const struct dn_tensor *x, int mode, struct dn_tensor *out)
{
	memset(out, 0, sizeof *out);
	out->nd = x->nd;
	out->type = x->type == DN_DOUBLE ? DN_DOUBLE : DN_FLOAT;
	for (int i = 0; i < x->nd; i++)
		out->dims[i] = i == 1 || (i > 1 && mode == DN_PER_ACTIVATION) ? x->dims[i] : 1;
	dn_tensor_spread(out, false);
}

static bool is_mode(int mode)
{
	return mode >= DN_PER_ACTIVATION && mode <= DN_SPATIAL_PERSISTENT;
}

int cudnnDeriveBNTensorDescriptor(void *derived, const void *x, int mode)
{
	struct dn_tensor_descriptor *d = dn_object_find(derived, DN_TENSOR);
	const struct dn_tensor *t = dn_tensor_find(x);

	if (!d || !t || !is_mode(mode))
		return dn_fail(DN_BAD_PARAM, "no tensor, or no such mode");
	derive(t, mode, &d->tensor);
	return DN_SUCCESS;
}

static int check_x(const struct dn_tensor *x)
{
	if (x->nd < 4 || x->nd > 5)
		return dn_fail(DN_BAD_PARAM, "images of two or three dimensions are normalised");
	if (x->type != DN_FLOAT && x->type != DN_HALF && x->type != DN_BFLOAT16 && x->type != DN_DOUBLE)
		return dn_fail(DN_NOT_SUPPORTED, "a type that is not normalised");
	return DN_SUCCESS;
}

/* What is known from x and the modes. */
static int begin(struct dn_norm *n, int mode, int ops)
{
	const struct dn_tensor *x = &n->x.tensor;
	int status = check_x(x);

	if (status != DN_SUCCESS)
		return status;
	if (!is_mode(mode) || ops < DN_NORM_ONLY || ops > DN_NORM_ADD_ACTIVATE)
		return dn_fail(DN_BAD_PARAM, "no such mode");
	if (ops != DN_NORM_ONLY && mode == DN_PER_ACTIVATION)
		return dn_fail(DN_NOT_SUPPORTED, "activations are fused with spatial modes only");
	n->mode = mode;
	n->ops = ops;
	n->type = x->type == DN_DOUBLE ? DN_DOUBLE : DN_FLOAT;
	n->channels = x->dims[1];
	n->spatial = dn_elements(x) / x->dims[0] / x->dims[1];
	n->parameters = mode == DN_PER_ACTIVATION ? n->channels * n->spatial : n->channels;
	return DN_SUCCESS;
}

/* Each tensor has the shape and type of x. */
static int check_shapes(const struct dn_norm *n)
{
	const struct dn_placed *const others[] = { &n->y, &n->z, &n->dy, &n->dz, &n->dx };
	const struct dn_tensor *x = &n->x.tensor;

	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		const struct dn_tensor *t = &others[i]->tensor;

		if (!t->nd)
			continue;
		if (t->nd != x->nd || memcmp(t->dims, x->dims, sizeof t->dims))
			return dn_fail(DN_BAD_PARAM, "a tensor has another shape than x");
		if (t->type != x->type)
			return dn_fail(DN_NOT_SUPPORTED, "a tensor has another type than x");
	}
	return DN_SUCCESS;
}

static int check_parameters(const struct dn_norm *n, const void *descriptor)
{
	const struct dn_tensor *t = dn_tensor_find(descriptor);
	struct dn_tensor wanted;

	derive(&n->x.tensor, n->mode, &wanted);
	if (!t || t->nd != wanted.nd || t->type != wanted.type || memcmp(t->dims, wanted.dims, sizeof t->dims))
		return dn_fail(DN_BAD_PARAM, "the parameters' tensor is not the one that is derived from x");
	if (n->epsilon < 0 || !n->scale || !n->mean != !n->deviation || !n->running_mean != !n->running_variance)
		return dn_fail(DN_BAD_PARAM, "a negative epsilon, no scale, or half of a pair");
	return DN_SUCCESS;
}

/* Only rectified linear units are fused. */
static int check_activation(const struct dn_norm *n, const void *descriptor)
{
	const struct dn_activation_descriptor *a = dn_object_find(descriptor, DN_ACTIVATION);

	if (n->ops == DN_NORM_ONLY)
		return DN_SUCCESS;
	if (!a)
		return dn_fail(DN_BAD_PARAM, "no activation");
	return a->mode == DN_ACT_RELU ? DN_SUCCESS : dn_fail(DN_NOT_SUPPORTED, "an activation that is not fused");
}

static int check_memory(const struct dn_norm *n, size_t workspace, size_t reserve)
{
	if (dn_norm_workspace(n) && (!n->workspace || workspace < dn_norm_workspace(n)))
		return dn_fail(DN_BAD_PARAM, "the workspace is too small");
	if (dn_norm_reserve(n) && (!n->reserve || reserve < dn_norm_reserve(n)))
		return dn_fail(DN_BAD_PARAM, "the reserved space is too small");
	return DN_SUCCESS;
}

static int post(void *handle, const struct dn_norm *filled)
{
	return dn_layer_post(handle, &filled->work, sizeof *filled, dn_norm_run);
}

static int check_call(const void *handle, const void *const *scales, int count)
{
	if (!dn_object_find(handle, DN_HANDLE))
		return dn_fail(DN_BAD_PARAM, "no handle");
	for (int i = 0; i < count; i++)
		if (!scales[i])
			return dn_fail(DN_BAD_PARAM, "a scale is missing");
	return DN_SUCCESS;
}

int cudnnBatchNormalizationForwardInference(void *handle, int mode, const void *alpha, const void *beta, const void *x_desc,
					    const void *x, const void *y_desc, void *y, const void *parameters, const void *scale,
					    const void *bias, const void *mean, const void *variance, double epsilon)
{
	struct dn_norm n = { .kind = DN_NORM_INFER, .scale = (void *)scale, .bias = (void *)bias, .mean = (void *)mean,
			     .deviation = (void *)variance, .epsilon = epsilon };
	int status = check_call(handle, (const void *[]){ alpha, beta, bias, mean }, 4);

	if (status == DN_SUCCESS)
		status = dn_place(&n.x, x_desc, x, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.y, y_desc, y, true);
	if (status == DN_SUCCESS)
		status = begin(&n, mode, DN_NORM_ONLY);
	if (status == DN_SUCCESS)
		status = check_shapes(&n);
	if (status == DN_SUCCESS)
		status = check_parameters(&n, parameters);
	if (status != DN_SUCCESS)
		return status;
	n.alpha = dn_scale(alpha, n.type);
	n.beta = dn_scale(beta, n.type);
	return post(handle, &n);
}

/* Its tensors are placed already. */
static int prepare(struct dn_norm *n, int mode, int ops, const void *parameters, void *activation)
{
	int status = begin(n, mode, ops);

	if (status == DN_SUCCESS)
		status = check_shapes(n);
	if (status == DN_SUCCESS)
		status = check_parameters(n, parameters);
	return status == DN_SUCCESS ? check_activation(n, activation) : status;
}

int cudnnBatchNormalizationForwardTrainingEx(void *handle, int mode, int ops, const void *alpha, const void *beta,
					     const void *x_desc, const void *x, const void *z_desc, const void *z, const void *y_desc,
					     void *y, const void *parameters, const void *scale, const void *bias, double factor,
					     void *running_mean, void *running_variance, double epsilon, void *saved_mean,
					     void *saved_deviation, void *activation, void *workspace, size_t workspace_bytes,
					     void *reserve, size_t reserve_bytes)
{
	struct dn_norm n = { .kind = DN_NORM_TRAIN, .scale = (void *)scale, .bias = (void *)bias, .running_mean = running_mean,
			     .running_variance = running_variance, .mean = saved_mean, .deviation = saved_deviation,
			     .epsilon = epsilon, .factor = factor, .workspace = workspace, .reserve = reserve };
	int status = check_call(handle, (const void *[]){ alpha, beta, bias }, 3);

	if (status == DN_SUCCESS)
		status = dn_place(&n.x, x_desc, x, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.y, y_desc, y, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.z, z_desc, z, ops == DN_NORM_ADD_ACTIVATE);
	if (status == DN_SUCCESS)
		status = prepare(&n, mode, ops, parameters, activation);
	if (status == DN_SUCCESS)
		status = check_memory(&n, workspace_bytes, reserve_bytes);
	if (status != DN_SUCCESS)
		return status;
	n.alpha = dn_scale(alpha, n.type);
	n.beta = dn_scale(beta, n.type);
	return post(handle, &n);
}

int cudnnBatchNormalizationBackwardEx(void *handle, int mode, int ops, const void *alpha, const void *beta,
				      const void *parameter_alpha, const void *parameter_beta, const void *x_desc, const void *x,
				      const void *y_desc, const void *y, const void *dy_desc, const void *dy, const void *dz_desc,
				      void *dz, const void *dx_desc, void *dx, const void *parameters, const void *scale,
				      const void *bias, void *d_scale, void *d_bias, double epsilon, const void *saved_mean,
				      const void *saved_deviation, void *activation, void *workspace, size_t workspace_bytes,
				      void *reserve, size_t reserve_bytes)
{
	struct dn_norm n = { .kind = DN_NORM_BACKWARD, .scale = (void *)scale, .d_scale = d_scale, .d_bias = d_bias,
			     .mean = (void *)saved_mean, .deviation = (void *)saved_deviation, .epsilon = epsilon,
			     .workspace = workspace, .reserve = reserve };
	const void *const needed[] = { alpha, beta, parameter_alpha, parameter_beta, d_scale, d_bias };
	int status = check_call(handle, needed, sizeof needed / sizeof *needed);

	(void)bias; /* the gradients do not depend on it */
	if (status == DN_SUCCESS)
		status = dn_place(&n.x, x_desc, x, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.y, y_desc, y, ops != DN_NORM_ONLY);
	if (status == DN_SUCCESS)
		status = dn_place(&n.dy, dy_desc, dy, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.dx, dx_desc, dx, true);
	if (status == DN_SUCCESS)
		status = dn_place(&n.dz, dz_desc, dz, ops == DN_NORM_ADD_ACTIVATE);
	if (status == DN_SUCCESS)
		status = prepare(&n, mode, ops, parameters, activation);
	if (status == DN_SUCCESS)
		status = check_memory(&n, workspace_bytes, reserve_bytes);
	if (status != DN_SUCCESS)
		return status;
	n.alpha = dn_scale(alpha, n.type);
	n.beta = dn_scale(beta, n.type);
	n.parameter_alpha = dn_scale(parameter_alpha, n.type);
	n.parameter_beta = dn_scale(parameter_beta, n.type);
	return post(handle, &n);
}

/* Without a workspace and a reserved space the persistent mode is the other one. */
static int plain_mode(int mode)
{
	return mode == DN_SPATIAL_PERSISTENT ? DN_SPATIAL : mode;
}

int cudnnBatchNormalizationForwardTraining(void *handle, int mode, const void *alpha, const void *beta, const void *x_desc,
					   const void *x, const void *y_desc, void *y, const void *parameters, const void *scale,
					   const void *bias, double factor, void *running_mean, void *running_variance,
					   double epsilon, void *saved_mean, void *saved_deviation)
{
	return cudnnBatchNormalizationForwardTrainingEx(handle, plain_mode(mode), DN_NORM_ONLY, alpha, beta, x_desc, x, NULL, NULL,
							y_desc, y, parameters, scale, bias, factor, running_mean, running_variance,
							epsilon, saved_mean, saved_deviation, NULL, NULL, 0, NULL, 0);
}

int cudnnBatchNormalizationBackward(void *handle, int mode, const void *alpha, const void *beta, const void *parameter_alpha,
				    const void *parameter_beta, const void *x_desc, const void *x, const void *dy_desc,
				    const void *dy, const void *dx_desc, void *dx, const void *parameters, const void *scale,
				    void *d_scale, void *d_bias, double epsilon, const void *saved_mean, const void *saved_deviation)
{
	return cudnnBatchNormalizationBackwardEx(handle, plain_mode(mode), DN_NORM_ONLY, alpha, beta, parameter_alpha, parameter_beta,
						 x_desc, x, NULL, NULL, dy_desc, dy, NULL, NULL, dx_desc, dx, parameters, scale, NULL,
						 d_scale, d_bias, epsilon, saved_mean, saved_deviation, NULL, NULL, 0, NULL, 0);
}

/* A size that depends on x and the modes. */
static int find_size(const void *handle, int mode, int ops, const void *x_desc, bool reserve, size_t *bytes)
{
	const struct dn_tensor *x = dn_tensor_find(x_desc);
	struct dn_norm n = { 0 };
	int status;

	if (!dn_object_find(handle, DN_HANDLE) || !x || !bytes)
		return dn_fail(DN_BAD_PARAM, "no handle, no tensor, or no place for the size");
	n.x.tensor = *x;
	status = begin(&n, mode, ops);
	if (status == DN_SUCCESS)
		*bytes = reserve ? dn_norm_reserve(&n) : dn_norm_workspace(&n);
	return status;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops, const void *x_desc, const void *z_desc,
							     const void *y_desc, const void *parameters, const void *activation,
							     size_t *bytes)
{
	(void)z_desc;
	(void)y_desc;
	(void)parameters;
	(void)activation;
	return find_size(handle, mode, ops, x_desc, false, bytes);
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, const void *x_desc, const void *y_desc,
						      const void *dy_desc, const void *dz_desc, const void *dx_desc,
						      const void *parameters, const void *activation, size_t *bytes)
{
	(void)y_desc;
	(void)dy_desc;
	(void)dz_desc;
	(void)dx_desc;
	(void)parameters;
	(void)activation;
	return find_size(handle, mode, ops, x_desc, false, bytes);
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, const void *activation,
							 const void *x_desc, size_t *bytes)
{
	(void)activation;
	return find_size(handle, mode, ops, x_desc, true, bytes);
}
