/* SPDX-License-Identifier: Apache-2.0 */
/* How what is shared between processes ends. */
#include <stdatomic.h>
#include <stdlib.h>

#include "ipc.h"

static pthread_mutex_t locks[] = { [WK_IPC_MADE] = PTHREAD_MUTEX_INITIALIZER, [WK_IPC_OPENED] = PTHREAD_MUTEX_INITIALIZER };

void wk_ipc_lock(enum wk_ipc_side side)
{
	pthread_mutex_lock(&locks[side]);
}

void wk_ipc_unlock(const enum wk_ipc_side *side)
{
	pthread_mutex_unlock(&locks[*side]);
}

void wk_ipc_tell(enum vg_export_what what, uint64_t id)
{
	const struct vg_export_request request = { .what = what, .id = id };
	struct vg_export_answer answer;

	vg_exports_ask(&request, &answer);
}

bool wk_ipc_is_opened(const struct wk_object *o)
{
	const struct wk_shared *s = atomic_load(&o->shared);

	return s && s->opens;
}

void wk_ipc_withdraw(struct wk_object *o)
{
	struct wk_shared *s;

	if (!atomic_load(&o->shared))
		return;
	IPC_LOCKED(WK_IPC_MADE);
	s = o->shared;
	if (s->id)
		wk_ipc_tell(VG_EXPORT_WITHDRAW, s->id);
	s->id = 0;
}

void wk_ipc_end(const struct wk_object *o)
{
	struct wk_shared *s = atomic_load(&o->shared);

	if (!s)
		return;
	if (s->id)
		wk_ipc_tell(s->opens ? VG_EXPORT_CLOSE : VG_EXPORT_WITHDRAW, s->id);
	free(s);
}
