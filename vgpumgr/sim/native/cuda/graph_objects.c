/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs hold user objects of the program. */
#include <pthread.h>

#include "graph.h"

bool user_object_start_thread(void *(*run)(void *))
{
	pthread_t thread;
	bool started = !pthread_create(&thread, NULL, run, NULL);

	if (started)
		pthread_detach(thread);
	return started;
}

CUresult cuUserObjectCreate(CUuserObject *out, void *data, CUhostFn destroy, unsigned references, unsigned flags)
{
	DRIVER_CHECK();
	return user_object_create(out, data, destroy, references, flags);
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
	DRIVER_CHECK();
	return user_object_retain(object, count);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
	DRIVER_CHECK();
	return user_object_release(object, count);
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count, unsigned flags)
{
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = graph_get(handle, &g);
	return r == CUDA_SUCCESS ? user_objects_retain(&g->objects, object, count, flags) : r;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count)
{
	struct graph *g;
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	r = graph_get(handle, &g);
	return r == CUDA_SUCCESS ? user_objects_release(&g->objects, object, count) : r;
}

void graph_let_go(struct graph *g, CUevent done)
{
	void *point = g->objects.count && done ? event_point(done) : NULL;
	struct graph *inner;

	if (point)
		user_objects_drop_after(&g->objects, event_point_passed, point);
	for (struct graph_node *n = g->nodes; n; n = n->next) {
		for (size_t i = 0; (inner = node_inner(n, i)); i++)
			graph_let_go(inner, done);
	}
}
