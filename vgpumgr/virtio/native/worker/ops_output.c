/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: the guest process fetches what its kernels have printed, and says which calls it was refused. */
#include "output.h"
#include "vg_worker.h"

CUresult wk_do_output_next(struct wk_call *c, struct vg_output_next_reply *out)
{
	struct wk_output taken = { .text = { out->output, out->errors }, .room = sizeof(out->output) };
	bool pending = wk_pending_any(); /* asked first: a module that is unloaded flushes what its kernels printed */

	_Static_assert(sizeof(out->output) == sizeof(out->errors), "one room for both");
	(void)c;
	wk_output_settle();
	out->more = wk_output_take(&taken) || pending;
	out->lost = taken.lost;
	out->output_length = taken.length[0];
	out->errors_length = taken.length[1];
	return CUDA_SUCCESS;
}

CUresult wk_do_call_refused(struct wk_call *c, const struct vg_call_refused_request *in)
{
	vg_lane_refused(c->lane, in->called.data, in->called.length);
	return CUDA_SUCCESS;
}
