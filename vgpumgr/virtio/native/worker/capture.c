/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that capture. The driver's captures are all relaxed: which thread of the guest may do what is decided there, and
 * calls of one guest process run on several threads here. A hostile guest gains nothing by it: what a graph may hold is
 * checked when its capture ends.
 */
#include <stdatomic.h>

#include "session.h"

CUresult wk_capture_ask(const struct wk_object *stream, CUstreamCaptureStatus *status, cuuint64_t *number)
{
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return wk_driver.cuStreamGetCaptureInfo_v2(wk_raw(stream), status, number, NULL, NULL, NULL);
}

CUresult wk_capture_asks(struct wk_call *c, const struct wk_object *stream, bool *captures)
{
	CUstreamCaptureStatus status;
	cuuint64_t number = 0;
	CUresult r;

	*captures = false;
	if (!stream || !atomic_load(&c->session->captures))
		return CUDA_SUCCESS;
	r = wk_capture_ask(stream, &status, &number);
	*captures = r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
	return r;
}

CUresult wk_capture_refuse(struct wk_call *c, const struct wk_object *stream)
{
	bool captures;
	CUresult r = wk_capture_asks(c, stream, &captures);

	if (r != CUDA_SUCCESS || !captures)
		return r;
	/* documented: a question about a stream that captures ends its capture */
	r = wk_driver.cuStreamQuery(wk_raw(stream));
	return r == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : r;
}

CUresult wk_capture_note(struct wk_call *c, struct wk_object *used, uint64_t nodes)
{
	struct wk_session *s = c->session;

	if (!atomic_load(&s->captures))
		return CUDA_SUCCESS;
	if (!wk_nodes_charge(nodes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->captured += nodes;
	return used ? wk_holds_add(&s->capture_holds, used) : CUDA_SUCCESS;
}

CUresult wk_capture_note_all(struct wk_call *c, const struct wk_graph *used)
{
	struct wk_session *s = c->session;

	if (!atomic_load(&s->captures))
		return CUDA_SUCCESS;
	if (!wk_nodes_charge(used->weight))
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->captured += used->weight;
	return wk_holds_add_all(&s->capture_holds, &used->holds);
}

void wk_capture_forget(struct wk_session *s)
{
	wk_nodes_refund(s->captured);
	s->captured = 0;
	wk_holds_drop(&s->capture_holds);
}
