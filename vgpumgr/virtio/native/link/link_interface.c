/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"
#include "vg_interface.h"
#include "vg_ops.h"

const struct vg_interface *const link_interface = &vg_interface;

/*
 * All sessions of an attachment are one user's here: whose process it is in the VM does not come along. A token that one user's
 * process makes could be opened by another user's, so there are none.
 */
bool link_shares(uint32_t op)
{
	return op == VG_OP_ipc_memory_export || op == VG_OP_ipc_memory_open || op == VG_OP_ipc_memory_close ||
	       op == VG_OP_ipc_event_export || op == VG_OP_ipc_event_open;
}
