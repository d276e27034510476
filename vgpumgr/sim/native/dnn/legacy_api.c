/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions before graphs: the functions. */
#include "builder.h"
#include "exports.h"
#include "legacy.h"

/* The largest part of address space that a workspace may take where the program names no limit. */
static const size_t any_workspace = SIZE_MAX;

static int output_dims(const void *convolution, const void *x, const void *w, int64_t *out, int *nd)
{
	const struct dn_convolution_descriptor *c = dn_object_find(convolution, DN_CONVOLUTION);
	const struct dn_filter_descriptor *f = dn_object_find(w, DN_FILTER);
	const struct dn_tensor *t = dn_tensor_find(x);

	if (!c || !f || !t || !c->operator.nd || t->nd != c->operator.nd + 2 || f->tensor.nd != t->nd)
		return dn_fail(DN_BAD_PARAM, "a descriptor is missing, or they have not one rank");
	out[0] = t->dims[0];
	out[1] = f->tensor.dims[0];
	for (int i = 0; i < c->operator.nd; i++) {
		int64_t reach = c->operator.dilation[i] * (f->tensor.dims[i + 2] - 1) + 1;
		int64_t span = t->dims[i + 2] + 2 * c->operator.pre[i] - reach;

		if (span < 0)
			return dn_fail(DN_BAD_PARAM, "the filter is larger than the image");
		out[i + 2] = span / c->operator.stride[i] + 1;
	}
	*nd = t->nd;
	return DN_SUCCESS;
}

int cudnnGetConvolutionNdForwardOutputDim(const void *convolution, const void *x, const void *w, int nd, int *dims)
{
	int64_t found[DN_MAX_DIMS];
	int rank, status = output_dims(convolution, x, w, found, &rank);

	if (status != DN_SUCCESS)
		return status;
	if (!dims || nd < rank)
		return dn_fail(DN_BAD_PARAM, "no place for the sizes");
	for (int i = 0; i < rank; i++)
		dims[i] = (int)found[i];
	return DN_SUCCESS;
}

int cudnnGetConvolution2dForwardOutputDim(const void *convolution, const void *x, const void *w, int *n, int *c, int *height, int *width)
{
	int64_t found[DN_MAX_DIMS];
	int rank, status = output_dims(convolution, x, w, found, &rank);

	if (status != DN_SUCCESS)
		return status;
	if (rank != 4 || !n || !c || !height || !width)
		return dn_fail(DN_BAD_PARAM, "no images, or no place for the sizes");
	*n = (int)found[0];
	*c = (int)found[1];
	*height = (int)found[2];
	*width = (int)found[3];
	return DN_SUCCESS;
}

static int get_count(const void *handle, enum dn_direction direction, int *count)
{
	if (!dn_object_find(handle, DN_HANDLE) || !count)
		return dn_fail(DN_BAD_PARAM, "no handle, or no place for the number");
	*count = dn_legacy_count(direction);
	return DN_SUCCESS;
}

int cudnnGetConvolutionForwardAlgorithmMaxCount(void *handle, int *count)
{
	return get_count(handle, DN_GO_FORWARD, count);
}

int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(void *handle, int *count)
{
	return get_count(handle, DN_GO_DATA, count);
}

int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(void *handle, int *count)
{
	return get_count(handle, DN_GO_FILTER, count);
}

/* A call's descriptors, with its handle. */
static int find(const void *handle, struct dn_legacy *l, enum dn_direction direction, const void *x, const void *w, const void *c,
		const void *y)
{
	if (!dn_object_find(handle, DN_HANDLE))
		return dn_fail(DN_BAD_PARAM, "no handle");
	return dn_legacy_find(l, direction, x, w, c, y);
}

static int rank(const void *handle, enum dn_direction direction, const void *x, const void *w, const void *c, const void *y,
		size_t most, int wanted, int *returned, struct dn_performance *results)
{
	struct dn_legacy l;
	int status = find(handle, &l, direction, x, w, c, y);

	return status == DN_SUCCESS ? dn_legacy_rank(&l, most, wanted, returned, results) : status;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, const void *x, const void *w, const void *convolution, const void *y,
					   int wanted, int *returned, void *results)
{
	return rank(handle, DN_GO_FORWARD, x, w, convolution, y, any_workspace, wanted, returned, results);
}

int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, const void *w, const void *dy, const void *convolution, const void *dx,
						int wanted, int *returned, void *results)
{
	return rank(handle, DN_GO_DATA, dx, w, convolution, dy, any_workspace, wanted, returned, results);
}

int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, const void *x, const void *dy, const void *convolution,
						  const void *dw, int wanted, int *returned, void *results)
{
	return rank(handle, DN_GO_FILTER, x, dw, convolution, dy, any_workspace, wanted, returned, results);
}

/* Nothing is measured: the order is known. */
int cudnnFindConvolutionForwardAlgorithmEx(void *handle, const void *x_desc, const void *x, const void *w_desc, const void *w,
					   const void *convolution, const void *y_desc, void *y, int wanted, int *returned,
					   void *results, void *workspace, size_t bytes)
{
	if (!x || !w || !y)
		return dn_fail(DN_BAD_PARAM, "a tensor is missing");
	return rank(handle, DN_GO_FORWARD, x_desc, w_desc, convolution, y_desc, workspace ? bytes : 0, wanted, returned, results);
}

int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, const void *w_desc, const void *w, const void *dy_desc, const void *dy,
						const void *convolution, const void *dx_desc, void *dx, int wanted, int *returned,
						void *results, void *workspace, size_t bytes)
{
	if (!w || !dy || !dx)
		return dn_fail(DN_BAD_PARAM, "a tensor is missing");
	return rank(handle, DN_GO_DATA, dx_desc, w_desc, convolution, dy_desc, workspace ? bytes : 0, wanted, returned, results);
}

int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, const void *x_desc, const void *x, const void *dy_desc,
						  const void *dy, const void *convolution, const void *dw_desc, void *dw, int wanted,
						  int *returned, void *results, void *workspace, size_t bytes)
{
	if (!x || !dy || !dw)
		return dn_fail(DN_BAD_PARAM, "a tensor is missing");
	return rank(handle, DN_GO_FILTER, x_desc, dw_desc, convolution, dy_desc, workspace ? bytes : 0, wanted, returned, results);
}

static int get_workspace(const void *handle, enum dn_direction direction, const void *x, const void *w, const void *c,
			 const void *y, int algorithm, size_t *bytes)
{
	struct dn_setting setting;
	struct dn_legacy l;
	int status = find(handle, &l, direction, x, w, c, y);

	if (status != DN_SUCCESS)
		return status;
	return bytes ? dn_legacy_setting(&l, algorithm, &setting, bytes) : dn_fail(DN_BAD_PARAM, "no place for the size");
}

int cudnnGetConvolutionForwardWorkspaceSize(void *handle, const void *x, const void *w, const void *convolution, const void *y,
					    int algorithm, size_t *bytes)
{
	return get_workspace(handle, DN_GO_FORWARD, x, w, convolution, y, algorithm, bytes);
}

int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, const void *w, const void *dy, const void *convolution, const void *dx,
						 int algorithm, size_t *bytes)
{
	return get_workspace(handle, DN_GO_DATA, dx, w, convolution, dy, algorithm, bytes);
}

int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, const void *x, const void *dy, const void *convolution,
						   const void *dw, int algorithm, size_t *bytes)
{
	return get_workspace(handle, DN_GO_FILTER, x, dw, convolution, dy, algorithm, bytes);
}

/* What the three directions have in common: data of X, W and Y, and the workspace. */
struct call {
	const void *x, *w, *y, *alpha, *beta;
	int algorithm;
	void *workspace;
	size_t bytes;
};

/* How it is run; the workspace must be there. */
static int prepare(const struct dn_legacy *l, const struct call *c, struct dn_setting *setting)
{
	size_t needed;
	int status;

	if (!c->x || !c->w || !c->y || !c->alpha || !c->beta)
		return dn_fail(DN_BAD_PARAM, "a tensor or a scale is missing");
	status = dn_legacy_setting(l, c->algorithm, setting, &needed);
	if (status == DN_SUCCESS && needed && (!c->workspace || c->bytes < needed))
		return dn_fail(DN_BAD_PARAM, "the workspace is too small");
	return status;
}

static int convolve(const void *handle, struct dn_legacy *l, const struct call *c)
{
	struct dn_tensor x, w, y;
	struct dn_setting setting;
	struct dn_builder b;
	int status = prepare(l, c, &setting);

	if (status != DN_SUCCESS)
		return status;
	l->operation.alpha = dn_scale(c->alpha, l->x->type);
	l->operation.beta = dn_scale(c->beta, l->x->type);
	dn_builder_begin(&b, 1);
	x = dn_builder_tensor(&b, 0, l->x, c->x);
	w = dn_builder_tensor(&b, 1, l->w, c->w);
	y = dn_builder_tensor(&b, 2, l->y, c->y);
	dn_builder_add(&b, &l->operation, &x, &w, &y, NULL);
	return dn_builder_post(&b, handle, &setting, setting.engine == 1 ? NULL : c->workspace);
}

int cudnnConvolutionForward(void *handle, const void *alpha, const void *x_desc, const void *x, const void *w_desc, const void *w,
			    const void *convolution, int algorithm, void *workspace, size_t bytes, const void *beta,
			    const void *y_desc, void *y)
{
	struct call c = { x, w, y, alpha, beta, algorithm, workspace, bytes };
	struct dn_legacy l;
	int status = find(handle, &l, DN_GO_FORWARD, x_desc, w_desc, convolution, y_desc);

	return status == DN_SUCCESS ? convolve(handle, &l, &c) : status;
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, const void *w_desc, const void *w, const void *dy_desc,
				 const void *dy, const void *convolution, int algorithm, void *workspace, size_t bytes,
				 const void *beta, const void *dx_desc, void *dx)
{
	struct call c = { dx, w, dy, alpha, beta, algorithm, workspace, bytes };
	struct dn_legacy l;
	int status = find(handle, &l, DN_GO_DATA, dx_desc, w_desc, convolution, dy_desc);

	return status == DN_SUCCESS ? convolve(handle, &l, &c) : status;
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const void *x_desc, const void *x, const void *dy_desc,
				   const void *dy, const void *convolution, int algorithm, void *workspace, size_t bytes,
				   const void *beta, const void *dw_desc, void *dw)
{
	struct call c = { x, dw, dy, alpha, beta, algorithm, workspace, bytes };
	struct dn_legacy l;
	int status = find(handle, &l, DN_GO_FILTER, x_desc, dw_desc, convolution, dy_desc);

	return status == DN_SUCCESS ? convolve(handle, &l, &c) : status;
}

/* The sum of each channel. */
int cudnnConvolutionBackwardBias(void *handle, const void *alpha, const void *dy_desc, const void *dy, const void *beta,
				 const void *db_desc, void *db)
{
	const struct dn_tensor *from = dn_tensor_find(dy_desc), *to = dn_tensor_find(db_desc);
	struct dn_setting setting = { .engine = 1, .tiles = 1 };
	struct dn_operation o = { .kind = DN_D_REDUCTION_OP, .output = 1 };
	struct dn_tensor x, y;
	struct dn_builder b;

	if (!from || !to || !dy || !db || !alpha || !beta || from->nd != to->nd)
		return dn_fail(DN_BAD_PARAM, "a tensor or a scale is missing");
	for (int i = 0; i < to->nd; i++)
		if (to->dims[i] != (i == 1 ? from->dims[1] : 1))
			return dn_fail(DN_BAD_PARAM, "the bias has not one value for each channel");
	o.compute = from->type == DN_DOUBLE ? DN_DOUBLE : DN_FLOAT;
	o.alpha = dn_scale(alpha, from->type);
	o.beta = dn_scale(beta, from->type);
	dn_builder_begin(&b, 1);
	x = dn_builder_tensor(&b, 0, from, dy);
	y = dn_builder_tensor(&b, 1, to, db);
	dn_builder_add(&b, &o, &x, &y, NULL, NULL);
	return dn_builder_post(&b, handle, &setting, NULL);
}

/* y = activation(alpha1 * convolution + alpha2 * z + bias) */
static int fuse(const void *handle, struct dn_legacy *l, const struct call *c, const struct dn_tensor *z_tensor, const void *z,
		const struct dn_tensor *bias_tensor, const void *bias, int activation)
{
	enum { ADD = 0, IDENTITY = 21, RELU = 100 };
	int type = l->x->type == DN_DOUBLE ? DN_DOUBLE : DN_FLOAT;
	struct dn_tensor x, w, y, residue, shift, made, sum, shifted;
	struct dn_operation add = dn_builder_map(ADD, type, 1, 0), add_bias = add, last;
	struct dn_setting setting;
	struct dn_builder b;
	int status = prepare(l, c, &setting);

	if (status != DN_SUCCESS)
		return status;
	l->operation.alpha = dn_scale(c->alpha, type);
	add.pointwise.alpha2 = dn_scale(c->beta, type);
	last = dn_builder_map(activation == DN_ACT_RELU ? RELU : IDENTITY, type, 1, 0);
	dn_builder_begin(&b, 4);
	x = dn_builder_tensor(&b, 0, l->x, c->x);
	w = dn_builder_tensor(&b, 1, l->w, c->w);
	y = dn_builder_tensor(&b, 2, l->y, c->y);
	/* the residue and the result may be one tensor, so they have one identity each */
	residue = dn_builder_tensor(&b, 3, z_tensor, z);
	shift = dn_builder_tensor(&b, 4, bias_tensor, bias);
	made = dn_builder_between(5, l->y, type);
	sum = dn_builder_between(6, l->y, type);
	shifted = dn_builder_between(7, l->y, type);
	dn_builder_add(&b, &l->operation, &x, &w, &made, NULL);
	dn_builder_add(&b, &add, &made, &residue, NULL, &sum);
	dn_builder_add(&b, &add_bias, &sum, &shift, NULL, &shifted);
	dn_builder_add(&b, &last, &shifted, NULL, NULL, &y);
	return dn_builder_post(&b, handle, &setting, setting.engine == 1 ? NULL : c->workspace);
}

static bool has_shape(const struct dn_tensor *t, const struct dn_tensor *y, bool only_channels)
{
	if (!t || t->nd != y->nd)
		return false;
	for (int i = 0; i < y->nd; i++)
		if (t->dims[i] != (only_channels && i != 1 ? 1 : y->dims[i]))
			return false;
	return true;
}

int cudnnConvolutionBiasActivationForward(void *handle, const void *alpha1, const void *x_desc, const void *x, const void *w_desc,
					  const void *w, const void *convolution, int algorithm, void *workspace, size_t bytes,
					  const void *alpha2, const void *z_desc, const void *z, const void *bias_desc,
					  const void *bias, const void *activation, const void *y_desc, void *y)
{
	const struct dn_activation_descriptor *a = dn_object_find(activation, DN_ACTIVATION);
	const struct dn_tensor *residue = dn_tensor_find(z_desc), *shift = dn_tensor_find(bias_desc);
	struct call c = { x, w, y, alpha1, alpha2, algorithm, workspace, bytes };
	struct dn_legacy l;
	int status = find(handle, &l, DN_GO_FORWARD, x_desc, w_desc, convolution, y_desc);

	if (status != DN_SUCCESS)
		return status;
	if (!a || !z || !bias || !has_shape(residue, l.y, false) || !has_shape(shift, l.y, true))
		return dn_fail(DN_BAD_PARAM, "the activation, the residue or the bias is missing or does not fit");
	if (a->mode != DN_ACT_RELU && a->mode != DN_ACT_IDENTITY)
		return dn_fail(DN_NOT_SUPPORTED, "an activation that is not fused");
	return fuse(handle, &l, &c, residue, z, shift, bias, a->mode);
}
