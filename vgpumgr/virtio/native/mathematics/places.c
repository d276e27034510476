/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries without handles, in each context that they are used in. */
#include <stdlib.h>

#include "guest_math.h"

struct math_place {
	struct math_place *next;
	void *context;
	uint64_t handle;
};

static struct math_place *find(const struct math_places *places, const void *context)
{
	struct math_place *p = places->first;

	while (p && p->context != context)
		p = p->next;
	return p;
}

static int enter(struct math_places *places, uint32_t library, struct math_place **out, int *status)
{
	struct math_place *p;
	void *context = NULL;
	int result;

	math_channel()->current(&context);
	*out = context ? find(places, context) : NULL;
	if (*out && math_channel()->alive((*out)->handle))
		return 0;
	p = *out ? *out : calloc(1, sizeof(*p));
	if (!p)
		return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
	result = math_channel()->create(library, &p->handle, status);
	if ((result || *status) && p != *out)
		free(p);
	if (result || *status || p == *out)
		return result;
	/* one that was made current with it */
	math_channel()->current(&p->context);
	p->next = places->first;
	places->first = *out = p;
	return 0;
}

int math_enter(struct math_places *places, uint32_t library, uint64_t *handle, void **context, int *status)
{
	struct math_place *p;
	int result;

	*status = 0;
	math_ask_runtime();
	pthread_mutex_lock(&places->lock);
	result = enter(places, library, &p, status);
	if (!result && !*status) {
		*handle = p->handle;
		if (context)
			*context = p->context;
	}
	pthread_mutex_unlock(&places->lock);
	return result;
}
