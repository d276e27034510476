/* SPDX-License-Identifier: Apache-2.0 */
/* A default ordering interleaves subsequences: lane after lane gives one number. */
#include <stdlib.h>

#include "rand.h"

/* The order that is to stay for ever is that of the first release, whose generators all had as many. */
uint32_t rd_lanes_count(const struct rd_state *s)
{
	return s->type == RD_MRG32K3A && s->settings.ordering != RD_LEGACY ? RD_LANES_MRG : RD_LANES_XORWOW;
}

bool rd_lanes_begin(struct rd_state *s)
{
	uint32_t count = rd_lanes_count(s);
	uint64_t skip = s->position / count;

	free(s->lanes);
	s->lanes = calloc(count, sizeof(*s->lanes));
	if (!s->lanes)
		return false;
	s->turn = (uint32_t)(s->position % count);
	if (s->type == RD_XORWOW)
		rd_xorwow_begin(s->lanes, &s->settings, skip, s->turn);
	else
		rd_mrg_begin(s->lanes, count, s->settings.seed, skip, s->turn);
	return true;
}
