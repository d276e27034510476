/* SPDX-License-Identifier: Apache-2.0 */
#include "lane.h"
#include "no_transport.h"

#include <stdio.h>
#include <stdlib.h>

struct lane_call *lane_ask(struct vg_lane *lane, uint32_t sequence, uint32_t op)
{
	struct lane_call *c = &lane->calls[sequence % LANE_SLOTS];

	pthread_mutex_lock(&lane->lock);
	if (c->waits) {
		c = NULL;
	} else {
		c->waits = true;
		c->sequence = sequence;
		c->op = op;
		c->context = 0;
		lane->waiting++;
		lane->asked++;
	}
	pthread_mutex_unlock(&lane->lock);
	return c;
}

void lane_refused(struct vg_lane *lane, uint32_t sequence)
{
	struct lane_call *c = &lane->calls[sequence % LANE_SLOTS];

	pthread_mutex_lock(&lane->lock);
	if (c->waits && c->sequence == sequence) {
		c->waits = false;
		lane->waiting--;
		lane->asked--;
	}
	pthread_mutex_unlock(&lane->lock);
}

int vg_answer(struct vg_lane *lane, uint32_t sequence, int32_t status, const void *data, size_t length, size_t bulk)
{
	struct lane_call *c = &lane->calls[sequence % LANE_SLOTS];
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < length; i++) /* a reply that was not initialised is found here */
		sum += ((const uint8_t *)data)[i];
	pthread_mutex_lock(&lane->lock);
	if (!c->waits || c->sequence != sequence || bulk > LANE_BULK) {
		fprintf(stderr, "an answer to what was not asked, or too much of it\n");
		abort();
	}
	c->waits = false;
	lane->waiting--;
	lane->answered++;
	if (lane->learn)
		lane->learn(lane, c, status, data, length);
	pthread_mutex_unlock(&lane->lock);
	return 0;
}
