/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VGPUMGR_SHIM_USER_OBJECTS_END_H
#define VGPUMGR_SHIM_USER_OBJECTS_END_H

#include "shim.h"

/* Of a graph or an executable one, under the lock of hosts.c. */
void shim_user_objects_drop(struct shim_object *graph);

#endif
