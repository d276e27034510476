/* SPDX-License-Identifier: Apache-2.0 */
/* A guest process's session: made with its lane, and ended with all that it held. */
#include <stdlib.h>

#include "output.h"
#include "session.h"
#include "share.h"

struct wk_session *wk_session_create(struct vg_lane *lane)
{
	struct wk_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->lane = lane;
	wk_output_serve(lane);
	wk_frees_serve(lane);
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	s->queue_last = &s->queue;
	pthread_cond_init(&s->arrived, NULL);
	pthread_cond_init(&s->room, NULL);
	pthread_cond_init(&s->opened, NULL);
	wk_share_start(s);
	return s;
}

void wk_session_destroy(struct wk_session *s)
{
	wk_output_serve(NULL);
	wk_gates_close(s);
	wk_order_stop(s);
	wk_helpers_stop(s);
	wk_capture_forget(s);
	wk_numbers_drop(s, 0);
	wk_share_stop();
	wk_remove_all(s);
	wk_virtual_end(s);
	wk_frees_wait();
	wk_frees_serve(NULL);
	wk_gates_free(s);
	wk_uploads_drop(s);
	for (int i = 0; i < WK_TABLES; i++)
		free(s->tables[i].slots);
	free(s->ledger.at);
	free(s->spaces.at);
	free(s->mappings.at);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_cond_destroy(&s->arrived);
	pthread_cond_destroy(&s->room);
	pthread_cond_destroy(&s->opened);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
