/* SPDX-License-Identifier: Apache-2.0 */
/* The user objects of a graph that goes: what a launch may still use is held until it has ended. */
#include "user_objects_end.h"

static void destroy(struct shim_object *o, uint64_t event)
{
	struct vg_cuEventDestroy_v2_request in = { .context = o->context, .hEvent = event };

	if (!shim_object_retire(o, event))
		return;
	vg_send_cuEventDestroy_v2(&in);
	shim_object_recycle(SHIM_EVENT, event);
}

/* Asks the worker as a program would, but spoils no capture. An event that is gone went with its context. */
static bool has_passed(void *launched)
{
	struct vg_cuEventQuery_request in = { .hEvent = (uint64_t)launched };
	struct shim_object *o = shim_object_get(SHIM_EVENT, in.hEvent);

	if (!o)
		return true;
	in.context = o->context;
	if (vg_send_cuEventQuery(&in) == CUDA_ERROR_NOT_READY)
		return false;
	destroy(o, in.hEvent);
	return true;
}

void shim_user_objects_drop(struct shim_object *graph)
{
	CUevent launched = graph->graph.launched;

	graph->graph.launched = NULL;
	if (launched)
		user_objects_drop_after(&graph->graph.objects, has_passed, launched);
	else
		user_objects_drop(&graph->graph.objects);
}
