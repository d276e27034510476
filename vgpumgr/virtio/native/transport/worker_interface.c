/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations of a guest's libraries this worker has alike: they are told, and the host's administrator, too. */
#include <stdio.h>
#include <string.h>

#include "worker.h"

struct compared {
	uint64_t refused[VG_REFUSED_WORDS]; /* a bit for each word of theirs */
	uint32_t count, differ, missing;    /* theirs; of them refused; ours that they do not have alike */
};

/* Both rise, so that one walk is enough. */
static void compare(const uint64_t *theirs, const struct vg_interface *ours, struct compared *out)
{
	uint32_t alike = 0;

	for (uint32_t i = 0, j = 0; i < out->count; i++) {
		while (j < ours->count && ours->words[j] < theirs[i])
			j++;
		if (j < ours->count && ours->words[j] == theirs[i])
			alike++;
		else
			out->refused[i / 64] |= 1ull << i % 64;
	}
	out->differ = out->count - alike;
	out->missing = ours->count - alike;
}

/* Ids rise, so none is there twice. */
static bool is_interface(const uint64_t *words, uint32_t count)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (words[i] >> VG_ID_SHIFT <= last)
			return false;
		last = words[i] >> VG_ID_SHIFT;
	}
	return true;
}

static const char *relation(const char *theirs, const char *ours)
{
	int order = strverscmp(theirs, ours);

	return order < 0 ? "older than" : order > 0 ? "newer than" : "another build than";
}

static void note(struct vg_stats *stats, const char *who, const char *version, const struct compared *c)
{
	char ours[sizeof(stats->api_version)], text[VG_STATS_TEXT] = "";

	snprintf(ours, sizeof(ours), "%.*s", (int)sizeof(ours) - 1, stats->api_version);
	snprintf(text, sizeof(text), "%s %s, %s the host's %s: %u of its %u operations are refused, %u of the host's are "
		 "unknown to it", who, version, relation(version, ours), ours, c->differ, c->count, c->missing);
	memcpy(stats->mismatch, text, sizeof(text));
	atomic_fetch_add(&stats->mismatches, 1);
}

int vg_interface_answer(struct vg_lane *lane, const struct vg_call *call, const struct vg_interface *ours,
			struct vg_stats *stats, const char *who, const char *version)
{
	uint64_t theirs[VG_OPERATIONS_MAX];
	struct compared c = { .count = (uint32_t)(call->payload_length / sizeof(theirs[0])) };

	if (!call->payload_length || call->payload_length > sizeof(theirs) || call->payload_length % sizeof(theirs[0]) ||
	    !call->wants_reply || call->bulk_in || call->bulk_out)
		return -EPROTO;
	memcpy(theirs, call->payload, call->payload_length);
	if (!is_interface(theirs, c.count))
		return -EPROTO;
	compare(theirs, ours, &c);
	if (stats)
		note(stats, who, version, &c);
	return vg_answer(lane, call->sequence, 0, c.refused, (c.count + 63) / 64 * 8, 0) == -ENOENT ? -EPROTO : 0;
}
