/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that opens gates which it never asked about, asks afterwards, and makes more of them than anybody needs, also
 * when a graph has reached one beside them. The argument is the null driver; its host functions are ours, on threads, as a
 * genuine driver's are.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "no_transport.h"
#include "session.h"
#include "vg_worker.h"

enum { GATES = WK_GATES + 10, OURS = 3 };

static struct callback {
	CUhostFn function;
	void *data;
} callbacks[GATES];
static unsigned int launched;

int vg_answer(struct vg_lane *lane, uint32_t sequence, int32_t status, const void *data, size_t length, size_t bulk)
{
	(void)lane, (void)sequence, (void)status, (void)data, (void)length, (void)bulk;
	return 0;
}

static CUresult launch(CUstream stream, CUhostFn function, void *data)
{
	(void)stream;
	callbacks[launched++] = (struct callback){ function, data };
	return CUDA_SUCCESS;
}

static void *reach(void *argument)
{
	struct callback *c = argument;

	c->function(c->data);
	return NULL;
}

static CUresult make(struct wk_session *s, uint64_t number)
{
	struct wk_call c = { .session = s };
	struct vg_host_gate_request in = { .gate = number };

	return wk_do_host_gate(&c, &in);
}

static void open_unasked(struct wk_session *s)
{
	pthread_t thread[OURS];
	struct wk_call c = { .session = s };

	for (uint64_t i = 0; i < OURS; i++) {
		make(s, i);
		pthread_create(&thread[i], NULL, reach, &callbacks[i]);
	}
	for (uint64_t i = 0; i < OURS; i++) {
		struct vg_host_gate_open_request in = { .gate = i };

		wk_do_host_gate_open(&c, &in);
		pthread_join(thread[i], NULL);
	}
}

/* A graph's gate is one more, whose function the driver has already called. */
static unsigned int make_beside_graph(struct wk_session *s)
{
	struct wk_object host = { .kind = WK_HOST, .session = s, .number = 7 };
	struct callback graph = { wk_host_params(&host).fn, &host };
	unsigned int made = 0, gates = 0;
	pthread_t thread;

	pthread_create(&thread, NULL, reach, &graph);
	while (gates <= WK_GATES) {
		pthread_mutex_lock(&s->lock);
		gates = s->gates_count;
		pthread_mutex_unlock(&s->lock);
	}
	for (uint64_t i = 0; i < OURS; i++)
		made += make(s, 10 + i) == CUDA_SUCCESS;
	wk_gates_close(s);
	pthread_join(thread, NULL);
	return made;
}

int main(int argc, char **argv)
{
	char message[512];
	struct vg_host_gate_next_reply out;
	struct vg_call frame = { .sequence = 1 };
	struct wk_session *s = wk_session_create(NULL);
	struct wk_call c = { .session = s, .call = &frame };
	unsigned int made = 0;

	if (argc != 2 || wk_driver_load(argv[1], message, sizeof(message)))
		return 2;
	wk_driver.cuLaunchHostFunc = launch;
	open_unasked(s);
	if (wk_do_host_gate_next(&c, &out) != CUDA_SUCCESS || !c.answered) {
		fprintf(stderr, "a gate that has gone was told\n");
		return 1;
	}
	for (unsigned int i = 0; i < GATES - OURS; i++)
		made += make(s, 100 + i) == CUDA_SUCCESS;
	if (made != WK_GATES) {
		fprintf(stderr, "%u gates at once\n", made);
		return 1;
	}
	made = make_beside_graph(s);
	wk_session_destroy(s);
	if (made)
		fprintf(stderr, "%u gates beside a graph's\n", made);
	return made != 0;
}
