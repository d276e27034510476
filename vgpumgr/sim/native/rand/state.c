/* SPDX-License-Identifier: Apache-2.0 */
/* Where a generator is in its sequence. */
#include <stdlib.h>

#include "rand.h"

struct rd_state *rd_state_new(int type)
{
	struct rd_state *s = calloc(1, sizeof *s);

	if (s) {
		s->type = type;
		s->users = 1;
	}
	return s;
}

void rd_state_leave(struct rd_state *s)
{
	if (atomic_fetch_sub(&s->users, 1) != 1)
		return;
	free(s->lanes);
	free(s);
}

static bool begin(struct rd_state *s)
{
	switch (s->type) {
	case RD_XORWOW:
	case RD_MRG32K3A:
		return rd_lanes_begin(s);
	case RD_MT19937:
		rd_twister_begin(s, (uint32_t)s->settings.seed);
		return true;
	default:
		return true;
	}
}

/* Another seed is another sequence from the same position on, as with the genuine library; a replayed graph's settings may be old. */
bool rd_state_settle(struct rd_state *s, const struct rd_settings *new)
{
	bool seeded = !s->begun || new->seeded > s->settings.seeded, moved = !s->begun || new->moved > s->settings.moved;

	if (!seeded && !moved)
		return true;
	if (moved)
		s->position = new->offset;
	s->settings = *new;
	s->begun = begin(s);
	return s->begun;
}

static uint32_t next(struct rd_state *s)
{
	if (s->type == RD_MT19937)
		return rd_twister_next(s);
	return s->type == RD_XORWOW ? rd_xorwow_next(s->lanes[s->turn]) : rd_mrg_next(s->lanes[s->turn]);
}

void rd_draw(struct rd_state *s, struct rd_unit *unit)
{
	unsigned int width = unit->wide && s->type != RD_MRG32K3A ? 2 : 1;

	for (unsigned int i = 0; i < unit->numbers; i++) {
		uint32_t *words = &unit->words[i * (unit->wide ? 2 : 1)];

		if (s->type == RD_PHILOX)
			rd_philox_words(s->settings.seed, s->position + i, unit->wide, words);
		else
			for (unsigned int w = 0; w < width; w++)
				words[w] = next(s);
	}
	s->position += unit->numbers;
	if (s->lanes)
		s->turn = (s->turn + 1) % rd_lanes_count(s);
}
