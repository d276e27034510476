/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions of the guest. The driver's callback stands for the guest's function: it tells the guest that the gate
 * is reached, and holds the stream until the guest has opened it or has gone.
 */
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "share.h"
#include "vg_worker.h"

struct wk_gate {
	struct wk_gate *next;       /* in the session's list */
	struct wk_gate *next_reached;
	struct wk_session *session;
	struct wk_object *host;     /* of a graph: what the gate stands for there */
	struct wk_object *target;   /* held: where it holds up the device's work; NULL: no share */
	uint64_t number;
	bool open, told;
};

static void tell(struct wk_session *s, struct wk_gate *g)
{
	struct vg_host_gate_next_reply out = { .gate = g->number, .status = CUDA_SUCCESS };
	uint8_t data[VG_MAX_host_gate_next_reply];
	struct vg_encoder e;

	vg_encoder_init(&e, data, sizeof(data));
	vg_put_host_gate_next_reply(&e, &out);
	g->told = true;
	s->asked = false;
	vg_answer(s->lane, s->asked_sequence, CUDA_SUCCESS, data, sizeof(data), 0);
}

/* Out of both lists: a guest may open a gate that it never asked about. */
static void unlink_gate(struct wk_session *s, struct wk_gate *g)
{
	struct wk_gate **at;

	for (at = &s->gates; *at && *at != g; at = &(*at)->next)
		;
	if (*at) {
		*at = g->next;
		s->gates_count--;
		atomic_fetch_sub_explicit(&s->behind, 1, memory_order_release);
	}
	for (at = &s->reached; *at && *at != g; at = &(*at)->next_reached)
		;
	if (*at)
		*at = g->next_reached;
}

/* Under the lock. */
static void enter(struct wk_session *s, struct wk_gate *g)
{
	g->next = s->gates;
	s->gates = g;
	s->gates_count++;
	atomic_fetch_add_explicit(&s->behind, 1, memory_order_relaxed);
}

/* On a thread of the driver, under the lock, which it has no more afterwards. */
static void hold_stream(struct wk_session *s, struct wk_gate *g)
{
	struct wk_gate **last;

	if (s->asked) {
		tell(s, g);
	} else {
		for (last = &s->reached; *last; last = &(*last)->next_reached)
			;
		*last = g;
	}
	wk_share_reached(g->target);
	while (!g->open && !s->stopping)
		pthread_cond_wait(&s->opened, &s->lock);
	unlink_gate(s, g);
	pthread_mutex_unlock(&s->lock);
	wk_share_resume(s, g->target);
	if (g->target)
		wk_release_later(g->target); /* the driver calls us: it cannot be called */
	free(g);
}

static void reached(void *argument)
{
	struct wk_gate *g = argument;

	pthread_mutex_lock(&g->session->lock);
	hold_stream(g->session, g);
}

/* Without memory for its gate the guest is not told: what has no bytes of the guest's then goes on with those before. */
void wk_host_reached(void *argument)
{
	struct wk_object *host = argument;
	struct wk_session *s = host->session;
	struct wk_gate *g = calloc(1, sizeof(*g));

	if (!g)
		return;
	*g = (struct wk_gate){ .session = s, .host = host, .number = host->number };
	pthread_mutex_lock(&s->lock);
	enter(s, g);
	hold_stream(s, g);
}

CUresult wk_do_host_gate(struct wk_call *c, const struct vg_host_gate_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	struct wk_session *s = c->session;
	struct wk_gate *g;
	bool full;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_capture_refuse(c, stream);
	if (r != CUDA_SUCCESS)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->session = s;
	g->number = in->gate;
	g->target = wk_share_target(c, stream);
	pthread_mutex_lock(&s->lock);
	full = s->gates_count >= WK_GATES; /* graphs reach theirs without asking */
	if (!full)
		enter(s, g);
	pthread_mutex_unlock(&s->lock);
	if (full) {
		wk_release_held(&g->target);
		free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = wk_driver.cuLaunchHostFunc(wk_raw(stream), reached, g);
	if (r == CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&s->lock);
	unlink_gate(s, g);
	pthread_mutex_unlock(&s->lock);
	wk_release_held(&g->target);
	free(g);
	return r;
}

CUresult wk_do_host_gate_next(struct wk_call *c, struct vg_host_gate_next_reply *out)
{
	struct wk_session *s = c->session;
	CUresult r = CUDA_SUCCESS;
	struct wk_gate *g;

	pthread_mutex_lock(&s->lock);
	g = s->reached;
	if (g) {
		s->reached = g->next_reached;
		out->gate = g->number;
		g->told = true;
	} else if (s->asked || s->stopping) {
		r = CUDA_ERROR_INVALID_VALUE; /* one thread of a process asks, and only while it lives */
	} else {
		s->asked = true;
		s->asked_sequence = c->call->sequence;
		c->answered = true;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

CUresult wk_do_host_gate_open(struct wk_call *c, const struct vg_host_gate_open_request *in)
{
	struct wk_session *s = c->session;

	pthread_mutex_lock(&s->lock);
	for (struct wk_gate *g = s->gates; g; g = g->next)
		if (g->number == in->gate && (g->told || !g->host))
			g->open = true;
	pthread_cond_broadcast(&s->opened);
	pthread_mutex_unlock(&s->lock);
	return CUDA_SUCCESS;
}

/* Under the lock: the bytes that the worker keeps for a copy whose gate holds its stream. */
static uint8_t *find_bytes(struct wk_session *s, uint64_t gate, uint64_t offset, size_t length)
{
	struct wk_gate *g = s->gates;

	while (g && (g->number != gate || !g->host || !g->told || g->open))
		g = g->next;
	if (!g || offset > g->host->bytes || length > g->host->bytes - offset)
		return NULL;
	return (uint8_t *)g->host->address + offset;
}

CUresult wk_do_gate_fill(struct wk_call *c, const struct vg_gate_fill_request *in)
{
	size_t length = c->call->bulk_in_length;
	uint8_t *bytes;

	pthread_mutex_lock(&c->session->lock);
	bytes = find_bytes(c->session, in->gate, in->offset, length);
	if (bytes)
		memcpy(bytes, c->call->bulk_in, length);
	pthread_mutex_unlock(&c->session->lock);
	return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult wk_do_gate_fetch(struct wk_call *c, const struct vg_gate_fetch_request *in)
{
	size_t length = c->call->bulk_out_length;
	uint8_t *bytes;

	pthread_mutex_lock(&c->session->lock);
	bytes = find_bytes(c->session, in->gate, in->offset, length);
	if (bytes) {
		memcpy(c->call->bulk_out, bytes, length);
		c->bulk_filled = length;
	}
	pthread_mutex_unlock(&c->session->lock);
	return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void wk_gates_close(struct wk_session *s)
{
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->opened);
	if (s->asked) {
		s->asked = false;
		vg_answer(s->lane, s->asked_sequence, CUDA_ERROR_DEINITIALIZED, NULL, 0, 0);
	}
	pthread_mutex_unlock(&s->lock);
}

/* Gates that the driver never reached: it calls no host function once a context is lost or destroyed. */
void wk_gates_free(struct wk_session *s)
{
	struct wk_gate *g;

	while ((g = s->gates)) {
		s->gates = g->next;
		wk_release_held(&g->target);
		free(g);
	}
}
