/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant STEP_NS STEPS DEPTH STREAMS FLIGHT [LATE_US [BEHIND]]: a guest process that computes without end. Its kernel is STEPS
 * times a nanosleep of STEP_NS, which is device time on a simulated machine with a clock; STEPS 0: it never ends. DEPTH kernels are launched into
 * each of STREAMS streams, FLIGHT times; then the oldest of them are waited for, and as many are launched: with more than one in
 * flight no stream lacks work. With LATE_US each launch stands behind a wait for memory, which a copy ends so much later: what
 * runs then was put there in another turn; with BEHIND 1 the wait stands behind the kernels, with 2 before them in one graph. SIGTERM ends it; it prints "ready",
 * and at the end how many kernels it has done, or the CUDA error.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STREAMS = 64, FLIGHTS = 4 };

static const char image[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry work(.param .u32 step, .param .u32 steps)\n{\n"
	".reg .u32 %r<4>;\n.reg .pred %p;\n"
	"ld.param.u32 %r1, [step];\nld.param.u32 %r2, [steps];\n"
	"again:\nnanosleep.u32 %r1;\nsub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p, %r2, 0;\n@%p bra again;\nret;\n}\n";

static volatile sig_atomic_t stopping;

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

static void *find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol) {
		printf("no %s\n", name);
		exit(1);
	}
	return symbol;
}

static void check(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	printf("%s: %d\n", what, r);
	exit(1);
}

static struct {
	CUresult (*init)(unsigned), (*device)(CUdevice *, int), (*retain)(CUcontext *, CUdevice), (*current)(CUcontext);
	CUresult (*load)(CUmodule *, const void *), (*function)(CUfunction *, CUmodule, const char *);
	CUresult (*stream)(CUstream *, unsigned), (*wait)(CUevent), (*event)(CUevent *, unsigned), (*record)(CUevent, CUstream);
	CUresult (*alloc)(CUdeviceptr *, size_t), (*copy)(CUdeviceptr, const void *, size_t);
	CUresult (*capture)(CUstream, CUstreamCaptureMode), (*captured)(CUstream, CUgraph *);
	CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long), (*run)(CUgraphExec, CUstream);
	CUresult (*end_exec)(CUgraphExec), (*end_graph)(CUgraph);
	CUresult (*hold)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
} cuda;

static void open_library(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("%s\n", dlerror());
		exit(1);
	}
	*(void **)&cuda.init = find(library, "cuInit");
	*(void **)&cuda.device = find(library, "cuDeviceGet");
	*(void **)&cuda.retain = find(library, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.current = find(library, "cuCtxSetCurrent");
	*(void **)&cuda.load = find(library, "cuModuleLoadData");
	*(void **)&cuda.function = find(library, "cuModuleGetFunction");
	*(void **)&cuda.stream = find(library, "cuStreamCreate");
	*(void **)&cuda.wait = find(library, "cuEventSynchronize");
	*(void **)&cuda.event = find(library, "cuEventCreate");
	*(void **)&cuda.record = find(library, "cuEventRecord");
	*(void **)&cuda.alloc = find(library, "cuMemAlloc_v2");
	*(void **)&cuda.copy = find(library, "cuMemcpyHtoD_v2");
	*(void **)&cuda.hold = find(library, "cuStreamWaitValue32_v2");
	*(void **)&cuda.capture = find(library, "cuStreamBeginCapture_v2");
	*(void **)&cuda.captured = find(library, "cuStreamEndCapture");
	*(void **)&cuda.instantiate = find(library, "cuGraphInstantiateWithFlags");
	*(void **)&cuda.run = find(library, "cuGraphLaunch");
	*(void **)&cuda.end_exec = find(library, "cuGraphExecDestroy");
	*(void **)&cuda.end_graph = find(library, "cuGraphDestroy");
	*(void **)&cuda.launch = find(library, "cuLaunchKernel");
}

static unsigned depth, late_us, behind;
static CUdeviceptr flag; /* launches before this number go on */
static void *arguments[2];

enum { BEFORE, BEHIND, IN_A_GRAPH };

static void run_captured(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	check(cuda.captured(stream, &graph), "cuStreamEndCapture");
	check(cuda.instantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
	check(cuda.run(exec, stream), "cuGraphLaunch");
	check(cuda.end_exec(exec), "cuGraphExecDestroy");
	check(cuda.end_graph(graph), "cuGraphDestroy");
}

static void launch(CUfunction function, CUstream stream, CUevent event)
{
	static cuuint32_t number;

	number++;
	if (late_us && behind == IN_A_GRAPH)
		check(cuda.capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
	if (late_us && behind != BEHIND)
		check(cuda.hold(stream, flag, number, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
	for (unsigned i = 0; i < depth; i++)
		check(cuda.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
	if (late_us && behind == IN_A_GRAPH)
		run_captured(stream);
	if (late_us && behind == BEHIND)
		check(cuda.hold(stream, flag, number, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
	check(cuda.record(event, stream), "cuEventRecord");
	if (late_us) {
		usleep(late_us);
		check(cuda.copy(flag, &number, sizeof(number)), "cuMemcpyHtoD");
	}
}

static CUfunction begin(unsigned streams, CUstream *stream)
{
	CUfunction function;
	CUcontext context;
	CUmodule module;
	CUdevice device;

	check(cuda.init(0), "cuInit");
	check(cuda.device(&device, 0), "cuDeviceGet");
	check(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
	check(cuda.current(context), "cuCtxSetCurrent");
	check(cuda.load(&module, image), "cuModuleLoadData");
	check(cuda.function(&function, module, "work"), "cuModuleGetFunction");
	check(cuda.alloc(&flag, 4), "cuMemAlloc");
	check(cuda.copy(flag, &(cuuint32_t){ 0 }, 4), "cuMemcpyHtoD");
	for (unsigned i = 0; i < streams; i++)
		check(cuda.stream(&stream[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	return function;
}

int main(int argc, char **argv)
{
	unsigned step = argc >= 6 && argc <= 8 ? (unsigned)atoi(argv[1]) : 0, steps = step ? (unsigned)atoi(argv[2]) : 0;
	unsigned streams = step ? (unsigned)atoi(argv[4]) : 0;
	unsigned flights = step ? (unsigned)atoi(argv[5]) : 0;
	CUstream stream[STREAMS] = { NULL };
	CUevent event[STREAMS][FLIGHTS];
	unsigned long done = 0;
	CUfunction function;

	depth = step ? (unsigned)atoi(argv[3]) : 0;
	late_us = argc > 6 ? (unsigned)atoi(argv[6]) : 0;
	behind = argc > 7 ? (unsigned)atoi(argv[7]) : 0;
	arguments[0] = &step;
	arguments[1] = &steps;
	if (!step || !depth || !streams || streams > STREAMS || !flights || flights > FLIGHTS)
		return 2;
	signal(SIGTERM, stop);
	open_library();
	function = begin(streams, stream);
	printf("ready\n");
	fflush(stdout);
	for (unsigned i = 0; i < streams * flights; i++) {
		check(cuda.event(&event[i % streams][i / streams], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
		launch(function, stream[i % streams], event[i % streams][i / streams]);
	}
	for (unsigned i = 0; !stopping; i = (i + 1) % (streams * flights)) {
		check(cuda.wait(event[i % streams][i / streams]), "cuEventSynchronize");
		done += depth;
		launch(function, stream[i % streams], event[i % streams][i / streams]);
	}
	printf("%lu\n", done);
	fflush(stdout);
	_exit(0);
}
