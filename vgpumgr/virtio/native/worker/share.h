/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where a session holds back its guest's work while its channel has no turn on the GPU, and finds out when none is
 * left there (docs/adr/0018-shares-by-turns.md). Without a share all of this costs a load and a branch.
 */
#ifndef VG_WORKER_SHARE_GATE_H
#define VG_WORKER_SHARE_GATE_H

#include "transport/worker_share.h"
#include "worker.h"

void wk_share_wait_and_enter(struct wk_call *c);
void wk_share_leave(struct wk_call *c);
void wk_share_mark_target(struct wk_call *c, struct wk_object *target);

/* Around a call that puts work on the device: waits for a turn. */
static inline void wk_share_begin(struct wk_call *c)
{
	if (__builtin_expect(vg_share_row != NULL, false))
		wk_share_wait_and_enter(c);
}
static inline void wk_share_end(struct wk_call *c)
{
	if (__builtin_expect(c->sharing, false))
		wk_share_leave(c);
}
/* Between them: the work goes into this stream, or the context's default one. */
static inline void wk_share_mark(struct wk_call *c, struct wk_object *stream)
{
	if (__builtin_expect(c->sharing, false))
		wk_share_mark_target(c, stream ? stream : c->context);
}

/* A session's process begins and ends to look after what is on the device. */
void wk_share_start(struct wk_session *session);
void wk_share_stop(void);
/* A context goes: the driver waits for what is in it, which counts as work until the call ends. */
void wk_share_forget(struct wk_call *c, struct wk_object *context);
/* A capture begins: streams that may be asked nothing then get a mark behind their work. */
void wk_share_prepare_capture(void);
/* What a host function holds, to be kept by its gate, or NULL. From reached to resume its stream does nothing on the device. */
struct wk_object *wk_share_target(struct wk_call *c, struct wk_object *stream);
void wk_share_reached(struct wk_object *target);
void wk_share_resume(struct wk_session *session, struct wk_object *target);

/*
 * Around a call that has the stream (NULL: the context's default one) wait for memory, as the last that it has to do. A stream
 * that has got to such a wait has nothing on the device, and nothing begins there by itself: what is put behind needs a turn.
 * `alone`: what begin has answered.
 */
bool wk_share_wait_begin(struct wk_call *c, struct wk_object *stream);
void wk_share_wait_end(struct wk_call *c, struct wk_object *stream, bool alone, CUresult r);

#endif
