/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

int buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
	size_t need = buffer->filled + length;

	if (need > buffer->room) {
		size_t room = need < 4096 ? 4096 : need * 2;
		uint8_t *more = realloc(buffer->bytes, room);

		if (!more)
			return -ENOMEM;
		buffer->bytes = more;
		buffer->room = room;
	}
	if (length)
		memcpy(buffer->bytes + buffer->filled, bytes, length);
	buffer->filled = need;
	return 0;
}

void buffer_take(struct buffer *buffer, size_t length)
{
	buffer->filled -= length;
	if (buffer->filled)
		memmove(buffer->bytes, buffer->bytes + length, buffer->filled);
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct buffer){ 0 };
}
