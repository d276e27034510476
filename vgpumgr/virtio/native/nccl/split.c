/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that are made of another one's ranks. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl.h"

/* What each rank says of itself. */
struct words {
	int32_t color, key;
	uint8_t random[96];
};

size_t split_words(struct op *op, void *to)
{
	struct words words = { NCCL_SPLIT_NOCOLOR, 0, { 0 } };

	if (op->split) {
		words.color = op->split->color;
		words.key = op->split->key;
	}
	sg_random(words.random, sizeof(words.random));
	memcpy(to, &words, sizeof(words));
	return sizeof(words);
}

static void answer(struct split *split, ncclResult_t result)
{
	pthread_mutex_lock(&split->lock);
	if (split->result == ncclInProgress)
		split->result = result;
	pthread_cond_broadcast(&split->known);
	pthread_mutex_unlock(&split->lock);
}

void split_refuse(struct split *split, ncclResult_t result)
{
	answer(split, result);
}

/* By key, and for the same key by the rank in the parent. */
void split_decide(ncclComm_t comm, struct op *op, const uint8_t *const *said)
{
	struct words own, other, first;
	int before = 0, members = 0, first_rank = -1;

	if (!op->split)
		return;
	memcpy(&own, said[comm->rank], sizeof(own));
	own.color = op->split->color;
	own.key = op->split->key;
	for (int rank = 0; rank < comm->ranks; rank++) {
		memcpy(&other, said[rank], sizeof(other));
		if (rank == comm->rank)
			other.color = own.color, other.key = own.key;
		if (other.color != own.color)
			continue;
		members++;
		before += other.key < own.key || (other.key == own.key && rank < comm->rank);
		if (first_rank < 0) {
			first_rank = rank;
			first = other;
		}
	}
	op->split->rank = before;
	op->split->ranks = members;
	answer(op->split, sg_make_id(&op->split->id, first.random) ? ncclSuccess : ncclSystemError);
}

void split_release(struct split *split)
{
	bool last;

	pthread_mutex_lock(&split->lock);
	last = !--split->holders;
	pthread_mutex_unlock(&split->lock);
	if (!last)
		return;
	pthread_cond_destroy(&split->known);
	pthread_mutex_destroy(&split->lock);
	free(split);
}

ncclResult_t split_wait(ncclComm_t comm)
{
	struct split *split = comm->split;
	ncclResult_t r;

	pthread_mutex_lock(&split->lock);
	while (split->result == ncclInProgress && !atomic_load(&comm->abort)) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&split->known, &split->lock, &until);
	}
	r = split->result == ncclInProgress ? ncclInvalidUsage : split->result;
	comm->rank = split->rank;
	comm->ranks = split->ranks;
	comm->id = split->id;
	pthread_mutex_unlock(&split->lock);
	return r;
}
