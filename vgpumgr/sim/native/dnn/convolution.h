/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of one to three spatial dimensions, with groups: forward, gradient of the data, gradient of the filter. */
#ifndef VGPUMGR_SIM_DNN_CONVOLUTION_H
#define VGPUMGR_SIM_DNN_CONVOLUTION_H

#include "dnn.h"

enum { DN_MAX_SPATIAL = 3 };

/* The operator, with as many entries as spatial dimensions. */
struct dn_operator {
	int nd, compute;
	bool flip; /* a convolution as mathematics has it, not a cross-correlation */
	int64_t pre[DN_MAX_DIMS], post[DN_MAX_DIMS], stride[DN_MAX_DIMS], dilation[DN_MAX_DIMS];
};

/* Sizes, always with three spatial dimensions. c and k are per group. */
struct dn_geometry {
	bool flip;
	int64_t n, g, c, k;
	int64_t in[DN_MAX_SPATIAL], filter[DN_MAX_SPATIAL], out[DN_MAX_SPATIAL];
	int64_t pre[DN_MAX_SPATIAL], stride[DN_MAX_SPATIAL], dilation[DN_MAX_SPATIAL];
	int64_t inputs, taps, outputs; /* products of the above */
};

/* Checks that the three tensors belong to the operator. */
int dn_geometry_make(const struct dn_operator *o, const struct dn_tensor *x, const struct dn_tensor *w, const struct dn_tensor *y,
		     struct dn_geometry *out);

enum dn_direction { DN_GO_FORWARD, DN_GO_DATA, DN_GO_FILTER };

/* Where patches of the image are spread out for products: so many images at once, an image in so many tiles. */
struct dn_patches {
	void *memory; /* NULL: no products, but plain loops */
	int64_t images, tiles;
};
/* Bytes that the patches take; -1: too many. */
int64_t dn_patches_bytes(const struct dn_geometry *g, bool wide, int64_t images, int64_t tiles);

/* x, w and y are packed. What is written starts as zeros. False: there is no memory. */
bool dn_convolve(const struct dn_geometry *g, enum dn_direction direction, bool wide, void *x, void *w, void *y,
		 const struct dn_patches *patches);

#endif
