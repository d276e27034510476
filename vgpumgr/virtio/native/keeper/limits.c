/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of device memory, changed while sessions run: the worker decides, since it alone sees what is held. */
#include <inttypes.h>
#include <sys/socket.h>

#include "keeper.h"

static bool send_limit(const struct keeper *keeper, unsigned number, uint64_t bytes)
{
	struct vg_note note = { .what = VG_KEEPER_LIMIT };

	snprintf(note.text, sizeof(note.text), "%u %" PRIu64, number, bytes);
	return keeper->worker.pid &&
	       send(keeper->worker.control, &note, sizeof(note), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(note);
}

static void decide(struct limit_change *limit, int error)
{
	limit->answered = limit->number;
	limit->error = error;
	if (!error)
		limit->bytes = limit->asked;
}

void keeper_change_memory(struct keeper *keeper, uint64_t bytes)
{
	keeper->limit.asked = bytes;
	keeper->limit.number++;
	if (!send_limit(keeper, keeper->limit.number, bytes))
		decide(&keeper->limit, 0);
}

void keeper_repeat_limit(struct keeper *keeper)
{
	if (keeper->limit.bytes)
		send_limit(keeper, 0, keeper->limit.bytes);
}

void keeper_hear_limit(struct keeper *keeper, const char *text)
{
	unsigned number;
	int error;

	if (sscanf(text, "%u %d", &number, &error) == 2 && number == keeper->limit.number &&
	    keeper->limit.answered != number)
		decide(&keeper->limit, error);
}

void keeper_decide_limit(struct keeper *keeper)
{
	if (keeper->limit.answered != keeper->limit.number)
		decide(&keeper->limit, 0);
}
