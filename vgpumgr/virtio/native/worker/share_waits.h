/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that wait for values in memory: what the list of a share's streams knows of them. */
#ifndef VG_SHARE_WAITS_H
#define VG_SHARE_WAITS_H

#include "worker.h"

struct wk_wait;

/* An event before the wait, and one behind it; NULL or false: there are none. */
struct wk_wait *wk_wait_begin(const struct wk_object *stream);
bool wk_wait_follow(struct wk_wait *wait, const struct wk_object *stream);
void wk_wait_end(struct wk_wait *wait);
/* Below under the list's lock. Remembers it; false: there are too many. */
bool wk_waits_add(struct wk_object *target, struct wk_wait *wait);
/* Whether the stream has got to a wait, and no further: nothing of it is on the device. Its context is current. */
bool wk_waits_hold(struct wk_object *target);
void wk_waits_drop(struct wk_object *target, bool with_events);

#endif
