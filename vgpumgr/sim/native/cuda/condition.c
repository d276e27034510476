/* SPDX-License-Identifier: Apache-2.0 */
#include "condition.h"

#include <stdlib.h>

static struct {
	pthread_mutex_t lock;
	struct condition *first;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct condition *condition_new(struct condition **list, CUcontext context, unsigned int initial, unsigned int flags)
{
	struct condition *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct condition){ .of_graph = *list, .handle = next_id() << 4 | 1, .refs = 1, .context = context,
				 .initial = initial, .flags = flags };
	*list = c;
	pthread_mutex_lock(&table.lock);
	c->next = table.first;
	table.first = c;
	pthread_mutex_unlock(&table.lock);
	return c;
}

void condition_unref(struct condition *c)
{
	struct condition **at = &table.first;

	if (!c || --c->refs)
		return;
	pthread_mutex_lock(&table.lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&table.lock);
	free(c);
}

bool condition_set(void *context, uint64_t handle, uint32_t value)
{
	struct condition *c;

	pthread_mutex_lock(&table.lock);
	for (c = table.first; c && c->handle != handle;)
		c = c->next;
	if (c && c->context != (CUcontext)context)
		c = NULL;
	if (c)
		__atomic_store_n(&c->value, value, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&table.lock);
	return c;
}
