/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the backend interface, read out of their contents and checked. */
#ifndef VGPUMGR_SIM_DNN_OPERATIONS_H
#define VGPUMGR_SIM_DNN_OPERATIONS_H

#include "program.h"

struct dn_operands {
	struct dn_tensor tensors[4];
	const struct dn_tensor *present[4]; /* NULL: there is none */
};

/* Checks a tensor's content before it is finalised, and gives it its defaults. */
int dn_tensor_check(struct dn_content *c);
int dn_operator_check(struct dn_content *c);
int dn_reduction_check(const struct dn_content *c);
/* Reads an operation, and checks that its operands belong together. */
int dn_operation_read(const struct dn_content *c, struct dn_operation *out, struct dn_operands *operands);

#endif
