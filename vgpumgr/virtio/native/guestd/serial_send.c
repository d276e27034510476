/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that wait to go out of a port. */
#include "agent.h"

enum { OUT_MAX = 256 << 10 };

bool agent_serial_full(const struct agent_serial *serial)
{
	return serial->out.filled > OUT_MAX;
}

int agent_serial_send(struct agent_serial *serial, uint32_t lane, uint32_t kind, const void *a, size_t a_length,
		      const void *b, size_t b_length)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, lane, kind, (uint32_t)(a_length + b_length) };

	if (!serial->synced)
		return -ENOTCONN;
	if (buffer_add(&serial->out, &message, sizeof(message)) || buffer_add(&serial->out, a, a_length) ||
	    buffer_add(&serial->out, b, b_length))
		return -ENOMEM;
	return 0;
}
