/* SPDX-License-Identifier: Apache-2.0 */
/* Programs for calls that come without a graph. */
#ifndef VGPUMGR_SIM_DNN_BUILDER_H
#define VGPUMGR_SIM_DNN_BUILDER_H

#include "run.h"

/* Tensors have identities from 0 on; those that are not virtual have an address. */
enum { DN_BUILDER_TENSORS = 12 };
struct dn_builder {
	struct dn_program *program;
	void *addresses[DN_BUILDER_TENSORS];
	int status; /* of the first step that failed; the ones after it do nothing */
};
void dn_builder_begin(struct dn_builder *b, int operations);
/* A copy of a tensor with an identity, at an address. */
struct dn_tensor dn_builder_tensor(struct dn_builder *b, int uid, const struct dn_tensor *t, const void *data);
/* A tensor of the same shape between two operations. */
struct dn_tensor dn_builder_between(int uid, const struct dn_tensor *t, int type);
/* Operands by role (program.h); NULL: none. */
void dn_builder_add(struct dn_builder *b, const struct dn_operation *o, const struct dn_tensor *first, const struct dn_tensor *second,
		    const struct dn_tensor *third, const struct dn_tensor *fourth);
/* Posts what was built, or frees it; the status. */
int dn_builder_post(struct dn_builder *b, const void *handle, const struct dn_setting *setting, void *workspace);
/* A pointwise operation that is computed in the type for these elements: y = alpha * mode(...) + beta * y */
struct dn_operation dn_builder_map(int mode, int type, double alpha, double beta);

#endif
