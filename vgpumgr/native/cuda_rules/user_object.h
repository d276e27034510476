/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User objects: what a program gives graphs to keep, with a function that is called when nobody holds it any more. They
 * live in the process alone, so the guest's libcuda and the simulated driver have the same ones. As CUDA documents it:
 * references are counted, graphs hold some, copies and executable graphs hold them too, and those that a launch may
 * still use are held until it has ended. The function runs on a thread of its own and may call nothing of CUDA.
 */
#ifndef VGPUMGR_USER_OBJECT_H
#define VGPUMGR_USER_OBJECT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct user_object;

/* What one graph holds. All zero: nothing. Who owns the graph lets no two threads at it at once. */
struct user_objects {
	struct user_object_held {
		struct user_object *object;
		unsigned count;
	} *held;
	size_t count;
};

CUresult user_object_create(CUuserObject *out, void *data, CUhostFn destroy, unsigned references, unsigned flags);
CUresult user_object_retain(CUuserObject handle, unsigned count);
CUresult user_object_release(CUuserObject handle, unsigned count);

/* cuGraphRetainUserObject and cuGraphReleaseUserObject; flags: CU_GRAPH_USER_OBJECT_MOVE takes the caller's references. */
CUresult user_objects_retain(struct user_objects *graph, CUuserObject handle, unsigned count, unsigned flags);
CUresult user_objects_release(struct user_objects *graph, CUuserObject handle, unsigned count);
/* A reference to each that `from` holds. */
CUresult user_objects_share(struct user_objects *to, const struct user_objects *from);
/* Holds nothing from now on. */
void user_objects_drop(struct user_objects *graph);
/* The same, but the references last until `passed(launch)` is true, which a thread asks and which then has let go of it. */
void user_objects_drop_after(struct user_objects *graph, bool (*passed)(void *launch), void *launch);

/* Of the library that this is part of: starts a thread that nobody waits for; false: it cannot. */
bool user_object_start_thread(void *(*run)(void *));

#endif
