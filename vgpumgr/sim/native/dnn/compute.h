/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a program on tensors in memory. */
#ifndef VGPUMGR_SIM_DNN_COMPUTE_H
#define VGPUMGR_SIM_DNN_COMPUTE_H

#include "program.h"

/* Does one operation; data is by the program's tensors. False: there is no memory. */
bool dn_compute(const struct dn_program *p, const struct dn_operation *o, void *const *data, const struct dn_patches *patches);

#endif
