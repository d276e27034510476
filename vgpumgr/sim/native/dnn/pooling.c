/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: the greatest or the mean of each window, and the gradients. */
#include <math.h>
#include <stdlib.h>

#include "classic.h"
#include "exports.h"
#include "layer.h"

enum { MAXIMUM = 0, MEAN_WITH_PADDING = 1, MEAN_WITHOUT_PADDING = 2, MAXIMUM_DETERMINISTIC = 3 };
enum { LAST_NAN = 1 };

struct pooling {
	struct work work;
	struct dn_pooling_descriptor how;
	struct dn_placed x, y, dy, dx; /* dy and dx: of the backward direction */
	double alpha, beta;
};

int cudnnCreatePoolingDescriptor(void **descriptor)
{
	return dn_object_give(DN_POOLING, sizeof(struct dn_pooling_descriptor), descriptor);
}

int cudnnDestroyPoolingDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_POOLING);
}

int cudnnSetPoolingNdDescriptor(void *descriptor, int mode, int nan, int nd, const int *window, const int *padding, const int *stride)
{
	struct dn_pooling_descriptor *d = dn_object_find(descriptor, DN_POOLING), changed;

	if (!d || mode < MAXIMUM || mode > MAXIMUM_DETERMINISTIC || nan < 0 || nan > LAST_NAN || nd < 1 || !window || !padding || !stride)
		return dn_fail(DN_BAD_PARAM, "no pooling descriptor, or a setting that cannot be");
	if (nd > DN_MAX_SPATIAL)
		return dn_fail(DN_NOT_SUPPORTED, "more than three spatial dimensions");
	changed = *d;
	changed.mode = mode;
	changed.nan = nan;
	changed.nd = nd;
	for (int i = 0; i < nd; i++) {
		if (window[i] < 1 || padding[i] < 0 || stride[i] < 1)
			return dn_fail(DN_BAD_PARAM, "a window, padding or stride that cannot be");
		changed.window[i] = window[i];
		changed.padding[i] = padding[i];
		changed.stride[i] = stride[i];
	}
	*d = changed;
	return DN_SUCCESS;
}

int cudnnSetPooling2dDescriptor(void *descriptor, int mode, int nan, int height, int width, int pad_h, int pad_w, int stride_h,
				int stride_w)
{
	return cudnnSetPoolingNdDescriptor(descriptor, mode, nan, 2, (const int[]){ height, width }, (const int[]){ pad_h, pad_w },
					   (const int[]){ stride_h, stride_w });
}

int cudnnGetPoolingNdForwardOutputDim(const void *descriptor, const void *x, int nd, int *dims)
{
	const struct dn_pooling_descriptor *d = dn_object_find(descriptor, DN_POOLING);
	const struct dn_tensor *t = dn_tensor_find(x);

	if (!d || !d->nd || !t || t->nd != d->nd + 2 || nd < t->nd || !dims)
		return dn_fail(DN_BAD_PARAM, "a descriptor is missing, or they have not one rank");
	for (int i = 0; i < t->nd; i++) {
		int64_t span = i < 2 ? 0 : t->dims[i] + 2 * d->padding[i - 2] - d->window[i - 2];

		if (span < 0)
			return dn_fail(DN_BAD_PARAM, "the window is larger than the image");
		dims[i] = (int)(i < 2 ? t->dims[i] : span / d->stride[i - 2] + 1);
	}
	return DN_SUCCESS;
}

int cudnnGetPooling2dForwardOutputDim(const void *descriptor, const void *x, int *n, int *c, int *height, int *width)
{
	int dims[DN_MAX_DIMS], status = cudnnGetPoolingNdForwardOutputDim(descriptor, x, DN_MAX_DIMS, dims);

	if (status != DN_SUCCESS)
		return status;
	if (!n || !c || !height || !width || dn_tensor_find(x)->nd != 4)
		return dn_fail(DN_BAD_PARAM, "no images, or no place for the sizes");
	*n = dims[0];
	*c = dims[1];
	*height = dims[2];
	*width = dims[3];
	return DN_SUCCESS;
}

/* A window over a plane: its elements are visited one after the other. */
struct window {
	const struct pooling *p;
	int64_t output; /* in the plane */
	int64_t step; /* which element comes next, padding included */
};

static int64_t product(const int64_t *values, int n)
{
	int64_t all = 1;

	for (int i = 0; i < n; i++)
		all *= values[i];
	return all;
}

/* The next element's place in the plane; -1: none is left. */
static int64_t next(struct window *w)
{
	const struct pooling *p = w->p;
	const int64_t *in = &p->x.tensor.dims[2], *out = &p->y.tensor.dims[2];

	for (; w->step < product(p->how.window, p->how.nd); w->step++) {
		int64_t step = w->step, output = w->output, at = 0, part = 1;
		bool inside = true;

		for (int i = p->how.nd - 1; i >= 0; i--) {
			int64_t place = output % out[i] * p->how.stride[i] - p->how.padding[i] + step % p->how.window[i];

			inside &= place >= 0 && place < in[i];
			at += place * part;
			part *= in[i];
			output /= out[i];
			step /= p->how.window[i];
		}
		if (inside) {
			w->step++;
			return at;
		}
	}
	return -1;
}

static bool is_maximum(const struct pooling *p)
{
	return p->how.mode == MAXIMUM || p->how.mode == MAXIMUM_DETERMINISTIC;
}

/* How many elements a mean is of. */
static double divisor(const struct pooling *p, int64_t output)
{
	struct window w = { p, output, 0 };
	int64_t n = 0;

	if (p->how.mode == MEAN_WITH_PADDING)
		return (double)product(p->how.window, p->how.nd);
	while (next(&w) >= 0)
		n++;
	return n ? (double)n : 1;
}

/* The place of the greatest; -1: the window is all padding. */
static int64_t find_greatest(const struct pooling *p, const double *x, int64_t output)
{
	struct window w = { p, output, 0 };
	int64_t best = -1, at;

	while ((at = next(&w)) >= 0)
		if (best < 0 || x[at] > x[best] || (isnan(x[at]) && p->how.nan))
			best = at;
	return best;
}

static double pool(const struct pooling *p, const double *x, int64_t output)
{
	struct window w = { p, output, 0 };
	double sum = 0;
	int64_t at;

	if (is_maximum(p)) {
		at = find_greatest(p, x, output);
		return at < 0 ? -INFINITY : x[at];
	}
	while ((at = next(&w)) >= 0)
		sum += x[at];
	return sum / divisor(p, output);
}

static void spread(const struct pooling *p, const double *x, int64_t output, double gradient, double *dx)
{
	struct window w = { p, output, 0 };
	int64_t at;

	if (is_maximum(p)) {
		at = find_greatest(p, x, output);
		if (at >= 0)
			dx[at] += gradient;
		return;
	}
	gradient /= divisor(p, output);
	while ((at = next(&w)) >= 0)
		dx[at] += gradient;
}

static void run(struct work *work)
{
	struct pooling *p = (struct pooling *)work;
	int64_t in = product(&p->x.tensor.dims[2], p->how.nd), out = product(&p->y.tensor.dims[2], p->how.nd);
	int64_t planes = p->x.tensor.dims[0] * p->x.tensor.dims[1];
	bool backward = p->dx.tensor.nd;
	double *x, *y, *dx;

	work->wild = false;
	if (!dn_placed_reach(work, &p->x) || !dn_placed_reach(work, &p->y) || !dn_placed_reach(work, &p->dy) || !dn_placed_reach(work, &p->dx))
		return;
	x = dn_placed_read(&p->x);
	y = dn_placed_read(backward ? &p->dy : &p->y);
	dx = calloc((size_t)(planes * in) + 1, sizeof *dx);
	for (int64_t i = 0; x && y && dx && i < planes; i++) {
		for (int64_t o = 0; o < out; o++) {
			if (backward)
				spread(p, x + i * in, o, y[i * out + o], dx + i * in);
			else
				y[i * out + o] = pool(p, x + i * in, o);
		}
	}
	if (x && y && dx && backward)
		dn_unpack(&p->dx.tensor, p->dx.data, true, dx, p->alpha, p->beta);
	else if (x && y && dx)
		dn_unpack(&p->y.tensor, p->y.data, true, y, p->alpha, p->beta);
	free(x);
	free(y);
	free(dx);
}

/* The result has the size that the windows give. */
static int check(struct pooling *p, const void *descriptor, const void *x_desc, const void *alpha, const void *beta)
{
	const struct dn_pooling_descriptor *d = dn_object_find(descriptor, DN_POOLING);
	int dims[DN_MAX_DIMS], status = cudnnGetPoolingNdForwardOutputDim(descriptor, x_desc, DN_MAX_DIMS, dims);

	if (status != DN_SUCCESS)
		return status;
	if (p->y.tensor.nd != p->x.tensor.nd || !alpha || !beta)
		return dn_fail(DN_BAD_PARAM, "the ranks differ, or a scale is missing");
	for (int i = 0; i < p->y.tensor.nd; i++)
		if (p->y.tensor.dims[i] != dims[i])
			return dn_fail(DN_BAD_PARAM, "the result has not the size that the windows give");
	p->how = *d;
	p->alpha = dn_scale(alpha, p->x.tensor.type);
	p->beta = dn_scale(beta, p->x.tensor.type);
	return DN_SUCCESS;
}

int cudnnPoolingForward(void *handle, const void *descriptor, const void *alpha, const void *x_desc, const void *x, const void *beta,
			const void *y_desc, void *y)
{
	struct pooling p = { 0 };
	int status = dn_place(&p.x, x_desc, x, true);

	if (status == DN_SUCCESS)
		status = dn_place(&p.y, y_desc, y, true);
	if (status == DN_SUCCESS)
		status = check(&p, descriptor, x_desc, alpha, beta);
	return status == DN_SUCCESS ? dn_layer_post(handle, &p.work, sizeof p, run) : status;
}

int cudnnPoolingBackward(void *handle, const void *descriptor, const void *alpha, const void *y_desc, const void *y,
			 const void *dy_desc, const void *dy, const void *x_desc, const void *x, const void *beta,
			 const void *dx_desc, void *dx)
{
	struct pooling p = { 0 };
	int status = dn_place(&p.x, x_desc, x, true);

	if (status == DN_SUCCESS)
		status = dn_place(&p.y, y_desc, y, true);
	if (status == DN_SUCCESS)
		status = dn_place(&p.dy, dy_desc, dy, true);
	if (status == DN_SUCCESS)
		status = dn_place(&p.dx, dx_desc, dx, true);
	if (status == DN_SUCCESS)
		status = check(&p, descriptor, x_desc, alpha, beta);
	if (status == DN_SUCCESS && (!dn_placed_alike(&p.y, &p.dy) || !dn_placed_alike(&p.x, &p.dx)))
		return dn_fail(DN_BAD_PARAM, "a gradient has another shape than its tensor");
	return status == DN_SUCCESS ? dn_layer_post(handle, &p.work, sizeof p, run) : status;
}
