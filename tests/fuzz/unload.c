/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context is destroyed while a launch in it is on its way into the driver, which takes its time there: the environment
 * says VGPUMGR_NULL_SLOW=cuLaunchKernel:... The module of the function must stay until the launch has returned.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lane.h"
#include "session.h"
#include "vg_worker.h"

enum { ROUNDS = 20 };

static struct vg_lane lane;
static uint32_t sequence;

static void send(struct wk_session *s, uint32_t op, const uint64_t *words, size_t count, const char *bulk, size_t length)
{
	struct vg_call call = {
		.op = op,
		.sequence = ++sequence,
		.wants_reply = !(wk_operation(op)->flags & WK_QUIET),
		.payload = words,
		.payload_length = count * sizeof(*words),
		.bulk_in = bulk,
		.bulk_in_length = length,
	};

	if (call.wants_reply && !lane_ask(&lane, sequence, op))
		abort();
	if (wk_call(s, &lane, &call)) {
		fprintf(stderr, "operation %x was refused\n", op);
		exit(1);
	}
	while (op == VG_OP_module_load && lane.waiting)
		sched_yield();
}

static void race(void)
{
	const uint64_t context = vg_handle_make(VG_TAG_CONTEXT, 1, 0), module = vg_handle_make(VG_TAG_MODULE, 1, 0);
	const uint64_t function = vg_handle_make(VG_TAG_FUNCTION, 1, 0), name = 'k';
	const uint64_t launch[] = { context, function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 24, 0, 0, 0 };
	struct wk_session *s = wk_session_create(&lane);

	send(s, VG_OP_context_create, (uint64_t[]){ context, 0, 0, 0 }, 4, NULL, 0);
	send(s, VG_OP_image_data, (uint64_t[]){ 1, 4, 0 }, 3, "ptx", 4);
	send(s, VG_OP_module_load, (uint64_t[]){ context, module, 1, 0, 0, 0 }, 6, NULL, 0);
	send(s, VG_OP_module_function, (uint64_t[]){ context, function, module, 2, name }, 5, NULL, 0);
	send(s, VG_OP_context_destroy, &context, 1, NULL, 0);
	send(s, VG_OP_launch, launch, sizeof(launch) / sizeof(launch[0]), NULL, 0);
	wk_session_destroy(s);
}

int main(void)
{
	char message[512];

	pthread_mutex_init(&lane.lock, NULL);
	if (wk_driver_load(NULL, message, sizeof(message)))
		return 2;
	for (int i = 0; i < ROUNDS; i++)
		race();
	return lane.waiting != 0;
}
