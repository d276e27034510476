/* SPDX-License-Identifier: Apache-2.0 */
/* Calls before graphs that are one piece of work: their tensors, and how they are posted. */
#ifndef VGPUMGR_SIM_DNN_LAYER_H
#define VGPUMGR_SIM_DNN_LAYER_H

#include "dnn.h"

/* A tensor and where it is; of rank 0: there is none. */
struct dn_placed {
	struct dn_tensor tensor;
	void *data;
};
/* Fills it where it is needed; then descriptor and address must be there. */
int dn_place(struct dn_placed *out, const void *descriptor, const void *data, bool needed);
/* Have both tensors one shape? */
bool dn_placed_alike(const struct dn_placed *a, const struct dn_placed *b);
/* Is the memory there, if there is a tensor? */
bool dn_placed_reach(struct work *work, const struct dn_placed *p);
/* Its elements as doubles, one after the other; to be freed. NULL: no memory. */
double *dn_placed_read(const struct dn_placed *p);
/* Posts a copy of a struct that begins with its work. */
int dn_layer_post(void *handle, const struct work *filled, size_t bytes, void (*run)(struct work *work));

#endif
