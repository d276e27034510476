/* SPDX-License-Identifier: Apache-2.0 */
/* User objects: who holds them, and when they are destroyed. */
#include <unistd.h>

#include "graphs.h"

static void destroy(void *data)
{
	__atomic_add_fetch((int *)data, 1, __ATOMIC_SEQ_CST);
}

static void wait_for(void *flag)
{
	while (!__atomic_load_n((int *)flag, __ATOMIC_SEQ_CST))
		usleep(1000);
}

/* Whether so many objects are destroyed soon, and stay so. */
static void expect_destroyed(int *count, int wanted)
{
	for (int i = 0; i < 5000 && __atomic_load_n(count, __ATOMIC_SEQ_CST) != wanted; i++)
		usleep(1000);
	usleep(20000);
	EXPECT(__atomic_load_n(count, __ATOMIC_SEQ_CST) == wanted);
}

static CUuserObject object(int *destroyed, unsigned references)
{
	CUuserObject o;

	OK(cuUserObjectCreate(&o, destroyed, destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	return o;
}

static CUgraph empty_graph(void)
{
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	return g;
}

/* Counted by the program and by graphs; copies of graphs count, too. */
static void user_objects(void)
{
	static int gone, none;
	CUuserObject o, other;
	CUgraph g, clone, parent;
	CUgraphNode node;
	CUgraphExec exec;

	begin();
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(NULL, &none, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &none, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &none, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &none, destroy, 1, 0));
	o = object(&gone, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectRetain(o, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(o, 2));
	OK(cuUserObjectRetain(o, 2));
	OK(cuUserObjectRelease(o, 2));
	expect_destroyed(&gone, 0);
	OK(cuUserObjectRelease(o, 1));
	expect_destroyed(&gone, 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(o, 1));

	g = empty_graph();
	o = object(&gone, 1);
	other = object(&gone, 3);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphRetainUserObject(g, o, 1, 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphRetainUserObject(g, o, 2, CU_GRAPH_USER_OBJECT_MOVE));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(g, o, 1));
	OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphRetainUserObject(g, other, 2, 0));
	OK(cuUserObjectRelease(other, 3));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(g, other, 3));
	OK(cuGraphReleaseUserObject(g, other, 2));
	expect_destroyed(&gone, 2);

	OK(cuGraphClone(&clone, g));
	parent = empty_graph();
	OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, clone));
	OK(cuGraphDestroy(g));
	OK(cuGraphDestroy(clone));
	exec = instantiate(parent);
	OK(cuGraphDestroy(parent));
	expect_destroyed(&gone, 2);
	OK(cuGraphExecDestroy(exec));
	expect_destroyed(&gone, 3);
	EXPECT(!none);
}

/* What a launch may still use is there until it has ended. */
static void launched_objects(void)
{
	static int gone, open;
	CUgraph g, captured;
	CUgraphExec exec, outer;
	CUstream s;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	g = empty_graph();
	add_node(g, NULL, 0, 0, 1);
	OK(cuGraphRetainUserObject(g, object(&gone, 1), 1, CU_GRAPH_USER_OBJECT_MOVE));
	exec = instantiate(g);
	OK(cuGraphDestroy(g));
	OK(cuGraphLaunch(exec, s));
	OK(cuLaunchHostFunc(s, wait_for, &open));
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphExecDestroy(exec));
	expect_destroyed(&gone, 0);
	__atomic_store_n(&open, 1, __ATOMIC_SEQ_CST);
	expect_destroyed(&gone, 1);
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 4);

	g = empty_graph();
	add_node(g, NULL, 0, 0, 1);
	OK(cuGraphRetainUserObject(g, object(&gone, 1), 1, CU_GRAPH_USER_OBJECT_MOVE));
	exec = instantiate(g);
	OK(cuGraphDestroy(g));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuGraphLaunch(exec, s));
	captured = end(s);
	OK(cuGraphExecDestroy(exec));
	outer = instantiate(captured);
	OK(cuGraphDestroy(captured));
	OK(cuGraphLaunch(outer, s));
	OK(cuStreamSynchronize(s));
	expect_destroyed(&gone, 1);
	OK(cuGraphExecDestroy(outer));
	expect_destroyed(&gone, 2);
	EXPECT(value(0) == 13);
}

/* An update takes the other graph's objects in the place of its own. */
static void updated_objects(void)
{
	static int gone, later;
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUgraph g, other;
	CUstream s;

	begin();
	s = stream(CU_STREAM_NON_BLOCKING);
	g = empty_graph();
	add_node(g, NULL, 0, 0, 1);
	OK(cuGraphRetainUserObject(g, object(&gone, 1), 1, CU_GRAPH_USER_OBJECT_MOVE));
	exec = instantiate(g);
	OK(cuGraphDestroy(g));
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	other = empty_graph();
	add_node(other, NULL, 0, 0, 5);
	OK(cuGraphRetainUserObject(other, object(&later, 1), 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphExecUpdate(exec, other, &info));
	OK(cuGraphDestroy(other));
	expect_destroyed(&gone, 1);
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	EXPECT(value(0) == 8 && !later);
	OK(cuGraphExecDestroy(exec));
	expect_destroyed(&later, 1);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "user_objects", user_objects },
		{ "launched_objects", launched_objects },
		{ "updated_objects", updated_objects },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
