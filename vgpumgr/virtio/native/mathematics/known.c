/* SPDX-License-Identifier: Apache-2.0 */
/* Which kinds of calls the library does: those are posted, and any other waits for its status. */
#include <string.h>

#include "guest_math.h"

uint64_t math_hash(uint64_t hash, uint64_t word)
{
	hash ^= word;
	hash *= 0x9e3779b97f4a7c15;
	return hash ^ hash >> 29;
}

static bool is_known(const struct math_known *known, uint64_t kind)
{
	for (uint64_t i = kind % MATH_KNOWN; known->at[i]; i = (i + 1) % MATH_KNOWN)
		if (known->at[i] == kind)
			return true;
	return false;
}

static void remember(struct math_known *known, uint64_t kind)
{
	uint64_t i = kind % MATH_KNOWN;

	if (known->count >= MATH_KNOWN / 2) {
		memset(known, 0, sizeof(*known));
		i = kind % MATH_KNOWN;
	}
	while (known->at[i])
		i = (i + 1) % MATH_KNOWN;
	known->at[i] = kind;
	known->count++;
}

int math_send(struct math_known *known, struct math_request *request, uint64_t kind)
{
	int result;

	kind |= 1; /* 0 is an empty place */
	/* what sets the stream anew must not be lost behind another call's error */
	if (request->wait == MATH_POST && (request->mode & MATH_ANEW || !is_known(known, kind)))
		request->wait = MATH_TRY;
	result = math_channel()->call(request);
	if (!result && request->wait == MATH_TRY && !request->status)
		remember(known, kind);
	return result;
}
