/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of the interface before graphs: which algorithms there are, and what they need. */
#ifndef VGPUMGR_SIM_DNN_LEGACY_H
#define VGPUMGR_SIM_DNN_LEGACY_H

#include "classic.h"
#include "graph.h"

/* cudnnConvolution...AlgoPerf_t */
struct dn_performance {
	int algorithm, status;
	float time;
	size_t memory;
	int determinism, math, reserved[3];
};

/* A convolution whose descriptors belong together. */
struct dn_legacy {
	enum dn_direction direction;
	const struct dn_tensor *x, *w, *y;
	const struct dn_convolution_descriptor *description;
	struct dn_operation operation;
};
int dn_legacy_find(struct dn_legacy *l, enum dn_direction direction, const void *x, const void *w, const void *convolution,
		   const void *y);
/* How an algorithm is run, and its workspace. */
int dn_legacy_setting(const struct dn_legacy *l, int algorithm, struct dn_setting *out, size_t *workspace);
/* Algorithms with no more than so much workspace, best first. */
int dn_legacy_rank(const struct dn_legacy *l, size_t most, int wanted, int *returned, struct dn_performance *results);
int dn_legacy_count(enum dn_direction direction);

#endif
