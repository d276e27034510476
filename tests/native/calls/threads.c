/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest program whose threads use the same objects at once, as programs may: usage is threads CASE ROUNDS. What a call
 * returns is not judged where threads race (the object may be gone); that every call returns is, and the worker's state.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMORIES = 500, EVENTS = 100, HOST_MS = 20, BEHIND = 3000, HANGS_S = 200 };

static const char image[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			    ".visible .entry kernel(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }\n"
			    ".visible .entry await(.param .u64 flag) {\n"
			    ".reg .pred %p;\n.reg .b32 %v;\n.reg .b64 %a;\n"
			    "ld.param.u64 %a, [flag];\ncvta.to.global.u64 %a, %a;\n"
			    "again:\natom.global.or.b32 %v, [%a], 0;\nsetp.eq.u32 %p, %v, 0;\n@%p bra again;\nret;\n}\n"
			    ".visible .entry tell(.param .u64 flag) {\n"
			    ".reg .b32 %v;\n.reg .b64 %a;\n"
			    "ld.param.u64 %a, [flag];\ncvta.to.global.u64 %a, %a;\n"
			    "atom.global.exch.b32 %v, [%a], 1;\nret;\n}\n";

static struct {
	CUcontext context, elsewhere;
	CUdeviceptr memory[MEMORIES], memory_elsewhere[MEMORIES];
	CUmodule module;
	CUfunction function;
	pthread_barrier_t start;
	_Atomic int ended;
} shared;

static void must(const char *what, CUresult r)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, r);
	exit(1);
}

static void open_context(void)
{
	must("cuCtxCreate", cuCtxCreate_v2(&shared.elsewhere, 0, 0));
	must("cuCtxCreate", cuCtxCreate_v2(&shared.context, 0, 0));
	for (int i = 0; i < MEMORIES; i++) {
		must("cuMemAlloc", cuMemAlloc_v2(&shared.memory[i], 256));
		must("cuCtxPushCurrent", cuCtxPushCurrent_v2(shared.elsewhere));
		must("cuMemAlloc", cuMemAlloc_v2(&shared.memory_elsewhere[i], 256));
		must("cuCtxPopCurrent", cuCtxPopCurrent_v2(NULL));
	}
	must("cuModuleLoadData", cuModuleLoadData(&shared.module, image));
	must("cuModuleGetFunction", cuModuleGetFunction(&shared.function, shared.module, "kernel"));
}

static CUresult launch(void)
{
	unsigned long long a = 0, c = 0;
	unsigned int b = 0;
	void *parameters[] = { &a, &b, &c };

	return cuLaunchKernel(shared.function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

/* ---- what the other thread does while the context is destroyed */

static void free_all(void)
{
	for (int i = 0; i < MEMORIES; i++)
		cuMemFree_v2(shared.memory[i]);
}

static void free_elsewhere(void)
{
	for (int i = 0; i < MEMORIES; i++)
		must("cuMemFree", cuMemFree_v2(shared.memory_elsewhere[i]));
}

static void launch_often(void)
{
	for (int i = 0; i < 50 && !shared.ended; i++)
		launch();
}

static void create_often(void)
{
	CUdeviceptr address;
	CUstream stream;
	CUevent event;

	for (int i = 0; i < EVENTS; i++) {
		cuEventCreate(&event, 0);
		cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		cuEventRecord(event, stream);
		cuMemAlloc_v2(&address, 64);
	}
}

static void look_up_often(void)
{
	CUfunction function;
	CUmodule module;
	CUdeviceptr address;
	size_t bytes;

	for (int i = 0; i < 20; i++) {
		if (cuModuleLoadData(&module, image) != CUDA_SUCCESS)
			return;
		cuModuleGetFunction(&function, module, "kernel");
		cuModuleGetGlobal_v2(&address, &bytes, module, "variable");
		if (i % 2)
			cuModuleUnload(module);
	}
}

static void copy_often(void)
{
	char bytes[256] = "";

	for (int i = 0; i < MEMORIES; i++) {
		cuMemcpyHtoD_v2(shared.memory[i], bytes, sizeof(bytes));
		cuMemcpyDtoH_v2(bytes, shared.memory[i], sizeof(bytes));
		cuMemFree_v2(shared.memory[i]);
	}
}

static void (*other_work)(void);

static void *other(void *unused)
{
	(void)unused;
	cuCtxSetCurrent(shared.context);
	pthread_barrier_wait(&shared.start);
	other_work();
	return NULL;
}

static void destroy_while(void (*work)(void))
{
	pthread_t thread;

	other_work = work;
	shared.ended = 0;
	open_context();
	pthread_create(&thread, NULL, other, NULL);
	pthread_barrier_wait(&shared.start);
	usleep(rand() % 100);
	must("cuCtxDestroy", cuCtxDestroy_v2(shared.context));
	shared.ended = 1;
	pthread_join(thread, NULL);
	must("cuCtxDestroy", cuCtxDestroy_v2(shared.elsewhere));
}

/* ---- host functions */

static void pause_a_little(void *count)
{
	usleep(HOST_MS * 1000);
	++*(int *)count;
}

static void pause_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

/* Whatever the driver does about a free, it may wait for the host function. */
static void free_behind_function(void)
{
	int ran = 0;

	must("cuCtxCreate", cuCtxCreate_v2(&shared.context, 0, 0));
	must("cuMemAlloc", cuMemAlloc_v2(&shared.memory[0], 256));
	must("cuMemAlloc", cuMemAlloc_v2(&shared.memory[1], 256));
	must("cuLaunchHostFunc", cuLaunchHostFunc(NULL, pause_a_little, &ran));
	must("cuMemFree", cuMemFree_v2(shared.memory[0]));
	for (int i = 0; i < BEHIND; i++)
		must("cuMemsetD8Async", cuMemsetD8Async(shared.memory[1], i, 256, NULL));
	must("cuCtxSynchronize", cuCtxSynchronize());
	must("cuMemFree", cuMemFree_v2(shared.memory[1]));
	must("cuCtxDestroy", cuCtxDestroy_v2(shared.context));
	if (ran != 1) {
		fprintf(stderr, "the host function ran %d times\n", ran);
		exit(1);
	}
}

static void be_stuck(void)
{
	must("cuCtxCreate", cuCtxCreate_v2(&shared.context, 0, 0));
	must("cuMemAlloc", cuMemAlloc_v2(&shared.memory[0], 256));
	must("cuLaunchHostFunc", cuLaunchHostFunc(NULL, pause_for_ever, NULL));
	must("cuMemFree", cuMemFree_v2(shared.memory[0]));
	puts("stuck");
	fflush(stdout);
	cuCtxSynchronize();
}

/* ---- a call that waits for a kernel, which waits for what another thread does */

static void free_memory(void)
{
	must("cuMemFree", cuMemFree_v2(shared.memory[0]));
}

static void unload_module(void)
{
	must("cuModuleUnload", cuModuleUnload(shared.module));
}

static void synchronize(void)
{
	must("cuCtxSynchronize", cuCtxSynchronize());
}

static CUstream busy;
static CUevent behind;
static CUfunction await, tell;

static void synchronize_stream(void)
{
	must("cuStreamSynchronize", cuStreamSynchronize(busy));
}

static void synchronize_event(void)
{
	must("cuEventSynchronize", cuEventSynchronize(behind));
}

static void run(CUfunction function, CUdeviceptr flag, CUstream stream)
{
	void *parameters[] = { &flag };

	must("cuLaunchKernel", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void open_busy_stream(void)
{
	CUdeviceptr flag;
	CUmodule other;

	must("cuCtxCreate", cuCtxCreate_v2(&shared.context, 0, 0));
	must("cuMemAlloc", cuMemAlloc_v2(&flag, 4));
	must("cuMemAlloc", cuMemAlloc_v2(&shared.memory[0], 256));
	must("cuMemsetD32", cuMemsetD32_v2(flag, 0, 1));
	/* a stream that does not block is not behind it by itself */
	must("cuCtxSynchronize", cuCtxSynchronize());
	must("cuModuleLoadData", cuModuleLoadData(&other, image));
	must("cuModuleLoadData", cuModuleLoadData(&shared.module, image));
	must("cuModuleGetFunction", cuModuleGetFunction(&await, other, "await"));
	must("cuModuleGetFunction", cuModuleGetFunction(&tell, other, "tell"));
	must("cuStreamCreate", cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
	must("cuEventCreate", cuEventCreate(&behind, 0));
	run(await, flag, busy);
	must("cuEventRecord", cuEventRecord(behind, busy));
	shared.memory[1] = flag;
}

/* This thread's calls end the wait of the other's, and none of them may stand behind it. */
static void work_beside(void (*waits)(void))
{
	unsigned int seen = 0;
	pthread_t thread;
	CUdeviceptr more;
	CUstream stream;

	other_work = waits;
	alarm(HANGS_S);
	open_busy_stream();
	must("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	pthread_create(&thread, NULL, other, NULL);
	pthread_barrier_wait(&shared.start);
	usleep(HOST_MS * 1000);
	must("cuMemAlloc", cuMemAlloc_v2(&more, 256));
	must("cuMemsetD32Async", cuMemsetD32Async(more, 7, 1, stream));
	must("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2(&seen, more, 4, stream));
	must("cuStreamSynchronize", cuStreamSynchronize(stream));
	if (seen != 7 || cuStreamQuery(busy) != CUDA_ERROR_NOT_READY) {
		fprintf(stderr, "the kernel did not wait, or what was done beside it was not: %u\n", seen);
		exit(1);
	}
	run(tell, shared.memory[1], stream);
	pthread_join(thread, NULL);
	must("cuCtxSynchronize", cuCtxSynchronize());
	must("cuCtxDestroy", cuCtxDestroy_v2(shared.context));
}

static const struct {
	const char *name;
	void (*waits)(void);  /* while another thread works, or: */
	void (*beside)(void); /* beside a cuCtxDestroy, or: */
	void (*alone)(void);
} cases[] = {
	{ "free", .beside = free_all },
	{ "free-elsewhere", .beside = free_elsewhere },
	{ "launch", .beside = launch_often },
	{ "create", .beside = create_often },
	{ "look-up", .beside = look_up_often },
	{ "copy", .beside = copy_often },
	{ "host-free", .alone = free_behind_function },
	{ "host-stuck", .alone = be_stuck },
	{ "wait-free", .waits = free_memory },
	{ "wait-unload", .waits = unload_module },
	{ "wait-context", .waits = synchronize },
	{ "wait-stream", .waits = synchronize_stream },
	{ "wait-event", .waits = synchronize_event },
};

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 1;

	pthread_barrier_init(&shared.start, NULL, 2);
	must("cuInit", cuInit(0));
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		for (int round = 0; round < rounds; round++)
			cases[i].waits ? work_beside(cases[i].waits) :
			cases[i].beside ? destroy_while(cases[i].beside) : cases[i].alone();
		return 0;
	}
	return 2;
}
