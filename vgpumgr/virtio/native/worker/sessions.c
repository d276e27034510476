/* SPDX-License-Identifier: Apache-2.0 */
/* A guest process's session: made with its lane, and ended with all that it held. */
#include <stdlib.h>

#include "session.h"

struct wk_session *wk_session_create(struct vg_lane *lane)
{
	struct wk_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->lane = lane;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	pthread_cond_init(&s->opened, NULL);
	return s;
}

void wk_session_destroy(struct wk_session *s)
{
	struct wk_table *contexts = &s->tables[WK_CONTEXT];

	wk_gates_close(s);
	wk_helpers_stop(s);
	for (uint32_t i = 0; i < contexts->count; i++) {
		struct wk_object *context = contexts->slots[i].object;

		if (!context)
			continue;
		contexts->slots[i].object = NULL;
		wk_forget_context(s, context);
		wk_release(context);
	}
	wk_gates_free(s);
	wk_uploads_drop(s);
	for (int i = 0; i < WK_TABLES; i++)
		free(s->tables[i].slots);
	free(s->ledger.at);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->opened);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
