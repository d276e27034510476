/* SPDX-License-Identifier: Apache-2.0 */
/* vgpumgr-link for the transport's test worker: its operations in the place of CUDA's. One of them counts as one that shares. */
#include "../transport/echo.h"
#include "../../../vgpumgr/virtio/native/link/link.h"

static uint64_t words[ECHO_NEW];
static struct vg_interface interface;
const struct vg_interface *const link_interface = &interface;

__attribute__((constructor)) static void copy(void)
{
	const struct vg_interface *echo = echo_interface(1);

	interface = *echo;
	for (uint32_t i = 0; i < echo->count; i++)
		words[i] = echo->words[i];
	interface.words = words;
}

bool link_shares(uint32_t op)
{
	return op == ECHO_ACCOUNT;
}
