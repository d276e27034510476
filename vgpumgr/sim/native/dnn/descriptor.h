/* SPDX-License-Identifier: Apache-2.0 */
/* What a program holds of the backend interface: a descriptor with a content. */
#ifndef VGPUMGR_SIM_DNN_DESCRIPTOR_H
#define VGPUMGR_SIM_DNN_DESCRIPTOR_H

#include "backend.h"

struct dn_descriptor {
	struct dn_object object;
	struct dn_content *content;
};

/* The content of a finalised descriptor of a type, for use in a call. */
int dn_descriptor_read(const void *pointer, int type, struct dn_content **out);

#endif
