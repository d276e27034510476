/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of a graph that holds user objects: an event tells when it has ended. */
#include "captures.h"
#include "hosts.h"

/* The launch itself has succeeded: whether this does is not its result. */
void shim_user_objects_launched(struct shim_object *exec, const struct vg_graph_launch_request *in, CUstream stream)
{
	CUevent made = NULL, launched;
	CUresult r;

	if (shim_capturing(in->context, in->stream, &r)) {
		shim_hosts_captured(exec);
		return;
	}
	if (!exec->graph.launched && cuEventCreate(&made, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return;
	shim_hosts_lock();
	if (!exec->graph.launched) {
		exec->graph.launched = made;
		made = NULL;
	}
	launched = exec->graph.launched;
	shim_hosts_unlock();
	if (made) /* another thread launched it, too */
		cuEventDestroy_v2(made);
	cuEventRecord(launched, stream);
}
