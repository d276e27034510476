/* SPDX-License-Identifier: Apache-2.0 */
#include "lane.h"

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

bool vg_lane_closing(const struct vg_lane *lane)
{
	(void)lane;
	return false;
}

void vg_lane_account(struct vg_lane *lane, uint64_t bytes)
{
	(void)lane, (void)bytes;
}

size_t vg_lane_uses(const struct vg_lane *lane, struct vg_lane_use *uses, size_t most)
{
	(void)lane;
	for (size_t i = 0; i < most && i < 2; i++)
		uses[i] = (struct vg_lane_use){ 100 + i, 4096 };
	return most < 2 ? most : 2;
}

void vg_watch_begin(struct vg_lane *lane, uint32_t op)
{
	(void)lane, (void)op;
}

void vg_watch_end(void)
{
}

void vg_lane_refused(struct vg_lane *lane, const char *name, size_t length)
{
	(void)lane, (void)name, (void)length;
}

void vg_lane_output(struct vg_lane *lane, bool waits)
{
	(void)lane;
	(void)waits;
}
