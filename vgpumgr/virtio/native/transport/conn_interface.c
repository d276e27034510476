/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the caller's operations the worker has alike. */
#include <errno.h>
#include <string.h>

#include "conn.h"

int vg_conn_compare(struct vg_conn *conn, const uint8_t theirs[VG_HASH_SIZE])
{
	const struct vg_interface *own = conn->interface;
	size_t bytes = own->count * sizeof(own->words[0]), expected = (own->count + 63) / 64 * 8;
	struct vg_frame frame;
	struct vg_reply reply;
	int error;

	if (!memcmp(own->hash, theirs, VG_HASH_SIZE))
		return 0;
	error = vg_begin(conn, VG_OP_INTERFACE, bytes, VG_BULK_NONE, 0, &frame);
	if (error)
		return error;
	memcpy(frame.payload, own->words, bytes);
	error = vg_call(conn, &frame, &reply);
	if (error)
		return error;
	if (!reply.status && reply.length == expected)
		memcpy(conn->refused, reply.data, expected);
	else
		error = -EPROTO;
	vg_reply_done(conn, &reply);
	if (error)
		vg_conn_say("the worker does not say which operations it has");
	for (uint32_t i = 0; i < VG_REFUSED_WORDS; i++)
		conn->differs |= conn->refused[i] != 0;
	return error;
}

uint32_t vg_conn_refused(const struct vg_conn *conn)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < VG_REFUSED_WORDS; i++)
		count += (uint32_t)__builtin_popcountll(conn->refused[i]);
	return count;
}
