/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the interface before graphs. */
#ifndef VGPUMGR_SIM_DNN_CLASSIC_H
#define VGPUMGR_SIM_DNN_CLASSIC_H

#include "convolution.h"

/* cudnnTensorFormat_t */
enum { DN_NCHW = 0, DN_NHWC = 1, DN_NCHW_VECT_C = 2 };
/* cudnnActivationMode_t */
enum {
	DN_ACT_SIGMOID = 0,
	DN_ACT_RELU = 1,
	DN_ACT_TANH = 2,
	DN_ACT_CLIPPED_RELU = 3,
	DN_ACT_ELU = 4,
	DN_ACT_IDENTITY = 5,
	DN_ACT_SWISH = 6,
};

struct dn_tensor_descriptor {
	struct dn_object object;
	struct dn_tensor tensor; /* of rank 0: nothing is set */
};

struct dn_filter_descriptor {
	struct dn_object object;
	struct dn_tensor tensor;
	int format;
};

struct dn_activation_descriptor {
	struct dn_object object;
	int mode, nan;
	double coefficient, swish_beta;
};

struct dn_convolution_descriptor {
	struct dn_object object;
	struct dn_operator operator; /* of no dimensions: nothing is set */
	int math, groups;
};

struct dn_pooling_descriptor {
	struct dn_object object;
	int mode, nan, nd; /* of no dimensions: nothing is set */
	int64_t window[DN_MAX_DIMS], padding[DN_MAX_DIMS], stride[DN_MAX_DIMS];
};

/* tensors.c */
/* A tensor whose descriptor is set; NULL: there is none. */
const struct dn_tensor *dn_tensor_find(const void *descriptor);
/* Strides without gaps, channels first or last. */
void dn_tensor_spread(struct dn_tensor *t, bool last);
/* Rank, type and sizes; a status. */
int dn_tensor_sizes(struct dn_tensor *t, int type, int nd, const int *dims);
/* A new object in the program's place for it. */
int dn_object_give(enum dn_kind kind, size_t bytes, void **place);
/* Descriptors that are not there are destroyed with success, as NVIDIA's library does with null. */
int dn_object_take(void *pointer, enum dn_kind kind);
/* The value of a scale on the host, which has the type in which elements of this one are computed. */
double dn_scale(const void *scale, int type);

#endif
