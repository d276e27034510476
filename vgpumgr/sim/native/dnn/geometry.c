/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a convolution, from its operator and tensors. */
#include <string.h>

#include "convolution.h"

/* Dimensions without one for groups, which is merged with the channels: of a filter with the outputs, its first. */
static int merge_groups(const struct dn_tensor *t, int spatial, int first, int64_t *dims)
{
	int at = 0;

	if (t->nd != spatial + 2 && t->nd != spatial + 3)
		return dn_fail(DN_BAD_PARAM, "a tensor has not the rank that the convolution needs");
	for (int i = 0; i < t->nd; i++) {
		if (t->nd == spatial + 3 && i == first + 1)
			dims[at - 1] *= t->dims[i];
		else
			dims[at++] = t->dims[i];
	}
	return DN_SUCCESS;
}

static bool is_output_size(const struct dn_operator *o, int i, int64_t in, int64_t filter, int64_t out)
{
	int64_t reach = o->dilation[i] * (filter - 1) + 1, span = in + o->pre[i] + o->post[i] - reach;

	return filter > 0 && span >= 0 && out == span / o->stride[i] + 1;
}

static int bind_channels(const int64_t *x, const int64_t *w, const int64_t *y, struct dn_geometry *g)
{
	if (y[0] != x[0])
		return dn_fail(DN_BAD_PARAM, "the numbers of images differ");
	if (!w[1] || !x[1] || x[1] % w[1])
		return dn_fail(DN_BAD_PARAM, "the image's channels are no multiple of the filter's");
	g->n = x[0];
	g->g = x[1] / w[1];
	g->c = w[1];
	if (!w[0] || w[0] % g->g)
		return dn_fail(DN_BAD_PARAM, "the filter's outputs are no multiple of the groups");
	g->k = w[0] / g->g;
	if (y[1] != w[0])
		return dn_fail(DN_BAD_PARAM, "the response has not the filter's channels");
	return DN_SUCCESS;
}

/* Missing dimensions come first and are 1. */
static int bind_spatial(const struct dn_operator *o, const int64_t *x, const int64_t *w, const int64_t *y, struct dn_geometry *g)
{
	for (int i = 0; i < DN_MAX_SPATIAL; i++)
		g->in[i] = g->filter[i] = g->out[i] = g->stride[i] = g->dilation[i] = 1;
	for (int i = 0; i < o->nd; i++) {
		int at = DN_MAX_SPATIAL - o->nd + i;

		if (!is_output_size(o, i, x[i + 2], w[i + 2], y[i + 2]))
			return dn_fail(DN_BAD_PARAM, "the response has not the size that the convolution gives");
		g->in[at] = x[i + 2];
		g->filter[at] = w[i + 2];
		g->out[at] = y[i + 2];
		g->pre[at] = o->pre[i];
		g->stride[at] = o->stride[i];
		g->dilation[at] = o->dilation[i];
	}
	g->inputs = g->in[0] * g->in[1] * g->in[2];
	g->taps = g->filter[0] * g->filter[1] * g->filter[2];
	g->outputs = g->out[0] * g->out[1] * g->out[2];
	return DN_SUCCESS;
}

int dn_geometry_make(const struct dn_operator *o, const struct dn_tensor *x, const struct dn_tensor *w, const struct dn_tensor *y,
		     struct dn_geometry *out)
{
	int64_t xs[DN_MAX_DIMS + 1], ws[DN_MAX_DIMS + 1], ys[DN_MAX_DIMS + 1];
	int status;

	memset(out, 0, sizeof *out);
	out->flip = o->flip;
	/* of [G, K, C, ...] the first two are one dimension; of [N, G, C, ...] the second and third */
	status = merge_groups(x, o->nd, 1, xs);
	if (status == DN_SUCCESS)
		status = merge_groups(w, o->nd, 0, ws);
	if (status == DN_SUCCESS)
		status = merge_groups(y, o->nd, 1, ys);
	if (status == DN_SUCCESS)
		status = bind_channels(xs, ws, ys, out);
	if (status != DN_SUCCESS)
		return status;
	if (o->nd > DN_MAX_SPATIAL)
		return dn_fail(DN_BAD_SHAPE, "more than three spatial dimensions");
	return bind_spatial(o, xs, ws, ys, out);
}
