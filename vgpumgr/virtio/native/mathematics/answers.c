/* SPDX-License-Identifier: Apache-2.0 */
/* What libraries have answered to questions whose answer depends on their words alone. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guest_math.h"

struct answer {
	uint64_t hash, check;
	size_t length;
	uint8_t *bytes;
};

static struct answer answers[MATH_ANSWERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool math_recall(uint64_t hash, uint64_t check, uint8_t *bytes, size_t *length)
{
	struct answer *a = &answers[hash % MATH_ANSWERS];
	bool found;

	pthread_mutex_lock(&lock);
	found = a->bytes && a->hash == hash && a->check == check;
	if (found)
		memcpy(bytes, a->bytes, *length = a->length);
	pthread_mutex_unlock(&lock);
	return found;
}

void math_keep(uint64_t hash, uint64_t check, const uint8_t *bytes, size_t length)
{
	struct answer *a = &answers[hash % MATH_ANSWERS];
	uint8_t *copy = malloc(length ? length : 1);

	if (!copy)
		return;
	memcpy(copy, bytes, length);
	pthread_mutex_lock(&lock);
	free(a->bytes);
	*a = (struct answer){ hash, check, length, copy };
	pthread_mutex_unlock(&lock);
}
