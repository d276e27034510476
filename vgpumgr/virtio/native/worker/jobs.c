/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that outlive the frame they came in. */
#include <stdlib.h>
#include <string.h>

#include "session.h"

struct wk_job *wk_job_new(struct vg_lane *lane, const struct vg_call *call, const struct wk_operation *o, wk_runner *run)
{
	size_t bytes = sizeof(struct wk_job) + call->payload_length + call->bulk_in_length;
	struct wk_job *job = malloc(bytes);

	if (!job)
		return NULL;
	*job = (struct wk_job){ .lane = lane, .operation = o, .run = run, .call = *call, .bytes = bytes };
	memcpy(job->data, call->payload, call->payload_length);
	job->call.payload = job->data;
	if (!call->bulk_in)
		return job;
	job->call.bulk_in = job->data + call->payload_length;
	memcpy(job->data + call->payload_length, call->bulk_in, call->bulk_in_length);
	return job;
}
