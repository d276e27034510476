/* SPDX-License-Identifier: Apache-2.0 */
/* User objects are this process's alone: the worker's driver never hears of them. Only the ends of launches do matter. */
#include "captures.h"
#include "graph.h"
#include "hosts.h"

bool user_object_start_thread(void *(*run)(void *))
{
	return shim_start_thread(run, NULL);
}

SHIM_API CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
				     unsigned int flags)
{
	CUresult r = shim_ready();

	return r == CUDA_SUCCESS ? user_object_create(object_out, ptr, destroy, initialRefcount, flags) : r;
}

SHIM_API CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	return user_object_retain(object, count);
}

SHIM_API CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	return user_object_release(object, count);
}

static CUresult find(CUgraph hGraph, struct shim_object **graph)
{
	uint64_t id;
	CUresult r = shim_graph(hGraph, &id);

	*graph = r == CUDA_SUCCESS ? shim_object_get(SHIM_GRAPH, id) : NULL;
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuGraphRetainUserObject(CUgraph hGraph, CUuserObject object, unsigned int count, unsigned int flags)
{
	struct shim_object *graph;
	CUresult r = find(hGraph, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	shim_hosts_lock();
	r = user_objects_retain(&graph->graph.objects, object, count, flags);
	shim_hosts_unlock();
	return r;
}

SHIM_API CUresult cuGraphReleaseUserObject(CUgraph hGraph, CUuserObject object, unsigned int count)
{
	struct shim_object *graph;
	CUresult r = find(hGraph, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	shim_hosts_lock();
	r = user_objects_release(&graph->graph.objects, object, count);
	shim_hosts_unlock();
	return r;
}
