/* SPDX-License-Identifier: Apache-2.0 */
/* All that one guest process has. */
#ifndef VGPUMGR_SESSION_H
#define VGPUMGR_SESSION_H

#include "worker.h"

struct wk_slot {
	struct wk_object *object;
	uint32_t generation;
};

struct wk_table {
	struct wk_slot *slots;
	uint32_t count, room;
};

struct wk_upload {
	uint32_t number;
	uint8_t *image;
	uint64_t filled, total;
};

struct wk_job;
struct wk_gate;

struct wk_session {
	struct vg_lane *lane;
	pthread_mutex_t lock;
	struct wk_table tables[WK_TABLES];
	struct {
		struct wk_object **at; /* by address */
		size_t count, room;
		uint64_t bytes;
	} ledger;
	CUresult deferred;             /* of the first quiet call that failed and has not been reported */
	int violation;
	struct wk_upload uploads[WK_UPLOADS];
	/* calls that wait */
	pthread_cond_t work, idle;
	struct wk_job *first, **last;
	unsigned int jobs, helpers, sleeping;
	bool stopping;
	/* host functions */
	pthread_cond_t opened;
	struct wk_gate *gates, *reached;
	uint32_t gates_count;
	bool asked;                    /* the guest waits for a gate */
	uint32_t asked_sequence;
};

/* Under the lock: the object, held, or NULL. */
struct wk_object *wk_hold_locked(struct wk_session *session, enum wk_kind kind, uint64_t handle);

#endif
