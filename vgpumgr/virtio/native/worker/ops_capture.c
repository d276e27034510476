/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: the calls that begin, end and ask about captures, and what is put into one beside the driver's own work. */
#include <pthread.h>
#include <stdatomic.h>

#include "session.h"
#include "share.h"
#include "vg_worker.h"

CUresult wk_do_capture_begin(struct wk_call *c, const struct vg_capture_begin_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&wk_numbers_lock);
	if (!atomic_load(&c->session->captures)) /* of captures whose stream was destroyed */
		wk_capture_none(c);
	atomic_fetch_add(&c->session->captures, 1);
	pthread_mutex_unlock(&wk_numbers_lock);
	wk_share_prepare_capture();
	r = wk_driver.cuStreamBeginCapture_v2(wk_raw(stream), CU_STREAM_CAPTURE_MODE_RELAXED);
	if (r == CUDA_SUCCESS && !stream->capturing)
		stream->capturing = c->session;
	else
		atomic_fetch_sub(&c->session->captures, 1);
	return r;
}

static CUresult keep(struct wk_call *c, uint64_t handle, CUgraph driver, cuuint64_t capture)
{
	struct wk_graph *graph = wk_graph_new(c->session->captured, &c->session->capture_holds);
	CUresult r = graph ? wk_graph_number(graph, driver) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		r = wk_numbers_apply(c->session, capture, graph);
	if (r == CUDA_SUCCESS)
		r = wk_capture_charge(graph, graph->count);
	if (r == CUDA_SUCCESS)
		r = wk_capture_check(c, graph);
	if (r == CUDA_SUCCESS)
		return wk_graph_put(c, WK_GRAPH, handle, driver, graph);
	wk_driver.cuGraphDestroy(driver);
	wk_graph_free(graph);
	return r;
}

/* By its stream: the driver does not number one that is of no use any more. */
static bool is_in_table(const struct wk_session *s, uint64_t stream, cuuint64_t capture)
{
	const struct wk_numbering *n = s->numberings;

	while (n && !(n->graph && atomic_load(&n->graph->graph->stream) == stream && (!capture || n->capture == capture)))
		n = n->next;
	return n;
}

CUresult wk_do_capture_end(struct wk_call *c, const struct vg_capture_end_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	struct wk_session *s = c->session;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t capture = 0;
	CUgraph driver = NULL;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	pthread_mutex_lock(&wk_numbers_lock);
	if (r == CUDA_SUCCESS && s->numberings)
		wk_capture_ask(stream, &status, &capture);
	if (status != CU_STREAM_CAPTURE_STATUS_NONE && is_in_table(s, in->stream, capture)) { /* ends by capture_finish */
		pthread_mutex_unlock(&wk_numbers_lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuStreamEndCapture(wk_raw(stream), &driver);
	if (r == CUDA_SUCCESS)
		r = keep(c, in->created, driver, capture);
	if (capture)
		wk_numbers_drop(s, capture);
	pthread_mutex_unlock(&wk_numbers_lock);
	wk_capture_over(c, stream);
	return r;
}

CUresult wk_do_capture_host(struct wk_call *c, const struct vg_capture_host_request *in)
{
	struct wk_object *stream WK_HELD = NULL, *host;
	struct wk_tip tip;
	CUresult r = wk_capture_tip(c, in->stream, &stream, &tip);

	if (r == CUDA_SUCCESS)
		r = wk_capture_note(c, NULL, 1);
	if (r == CUDA_SUCCESS)
		r = wk_host_make(c, &c->session->capture_holds, in->number, NULL, &host);
	return r == CUDA_SUCCESS ? wk_driver.cuLaunchHostFunc(wk_raw(stream), wk_host_reached, host) : r;
}

CUresult wk_do_capture_copy(struct wk_call *c, const struct vg_capture_copy_request *in)
{
	struct wk_box box = { in->number, in->address, in->pitch, in->slice, in->width, in->rows, in->slices, 0,
			      in->to_host };
	struct wk_object *stream WK_HELD = NULL, *host;
	struct wk_tip tip;
	CUgraphNode node;
	CUgraph pair;
	CUresult r = wk_capture_tip(c, in->stream, &stream, &tip);

	if (r == CUDA_SUCCESS)
		r = wk_check_box(c, &box);
	if (r == CUDA_SUCCESS)
		r = wk_capture_note(c, NULL, 3);
	if (r == CUDA_SUCCESS)
		r = wk_host_make(c, &c->session->capture_holds, in->number, &box, &host);
	if (r == CUDA_SUCCESS)
		r = wk_host_pair(c, host, &box, &pair);
	if (r != CUDA_SUCCESS)
		return r;
	r = wk_driver.cuGraphAddChildGraphNode(&node, tip.graph, tip.nodes, tip.count, pair);
	if (r == CUDA_SUCCESS)
		r = wk_driver.cuStreamUpdateCaptureDependencies(wk_raw(stream), &node, 1,
								CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	wk_driver.cuGraphDestroy(pair);
	return r;
}

CUresult wk_do_capture_status(struct wk_call *c, const struct vg_capture_status_request *in,
			      struct vg_capture_status_reply *out)
{
	struct wk_object *stream WK_HELD = NULL;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t number = 0;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_capture_ask(stream, &status, &number);
	out->status = status;
	out->number = number;
	return r;
}

CUresult wk_do_capture_check(struct wk_call *c, const struct vg_capture_check_request *in)
{
	(void)c;
	(void)in;
	return CUDA_SUCCESS;
}
