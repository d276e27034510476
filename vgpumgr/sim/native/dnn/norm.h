/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation as work on a stream. */
#ifndef VGPUMGR_SIM_DNN_NORM_H
#define VGPUMGR_SIM_DNN_NORM_H

#include "layer.h"

enum dn_norm_kind { DN_NORM_INFER, DN_NORM_TRAIN, DN_NORM_BACKWARD };
/* cudnnBatchNormMode_t */
enum { DN_PER_ACTIVATION = 0, DN_SPATIAL = 1, DN_SPATIAL_PERSISTENT = 2 };
/* cudnnBatchNormOps_t */
enum { DN_NORM_ONLY = 0, DN_NORM_ACTIVATE = 1, DN_NORM_ADD_ACTIVATE = 2 };

struct dn_norm {
	struct work work;
	enum dn_norm_kind kind;
	int mode, ops;
	struct dn_placed x, y, z, dy, dz, dx;
	int type; /* of the parameters */
	int64_t channels, spatial, parameters;
	void *scale, *bias, *running_mean, *running_variance, *mean, *deviation, *d_scale, *d_bias;
	double alpha, beta, parameter_alpha, parameter_beta, epsilon, factor;
	void *workspace, *reserve;
};

/* Sizes that depend on x and the mode; channels, spatial and parameters must be set. */
size_t dn_norm_workspace(const struct dn_norm *n);
size_t dn_norm_reserve(const struct dn_norm *n);
/* Runs on the library's thread; the work is freed with free(). */
void dn_norm_run(struct work *work);

#endif
