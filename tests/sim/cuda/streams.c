/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, their order, and many threads. Gates, not times, hold things back. */
#include <time.h>

#include "check.h"

static void make(CUstream *s, unsigned flags)
{
	OK(cuStreamCreate(s, flags));
}

static void increment(void *count)
{
	__atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
}

static void information(void)
{
	unsigned long long a, b;
	CUcontext ctx = new_context(), owner;
	unsigned flags;
	int priority;
	CUstream s, t;

	make(&s, CU_STREAM_NON_BLOCKING);
	OK(cuStreamCreateWithPriority(&t, CU_STREAM_DEFAULT, -100));
	OK(cuStreamGetFlags(s, &flags));
	EXPECT(flags == CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetPriority(t, &priority));
	EXPECT(priority < 0 && priority > -100);
	OK(cuStreamGetCtx(s, &owner));
	EXPECT(owner == ctx);
	OK(cuStreamGetId(s, &a));
	OK(cuStreamGetId(t, &b));
	EXPECT(a != b);
	OK(cuStreamDestroy(s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy((CUstream)&flags));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&s, 64));
}

/* Two streams work at once: each can only go on after the other has come as far. */
static sem_t meet[2];

static void meet_first(void *unused)
{
	(void)unused;
	sem_post(&meet[0]);
	sem_wait(&meet[1]);
}

static void meet_second(void *unused)
{
	(void)unused;
	sem_post(&meet[1]);
	sem_wait(&meet[0]);
}

static void overlap(void)
{
	CUstream s, t;

	new_context();
	sem_init(&meet[0], 0, 0);
	sem_init(&meet[1], 0, 0);
	make(&s, CU_STREAM_DEFAULT);
	make(&t, CU_STREAM_DEFAULT);
	OK(cuLaunchHostFunc(s, meet_first, NULL));
	OK(cuLaunchHostFunc(t, meet_second, NULL));
	OK(cuCtxSynchronize());
}

static void query(void)
{
	CUevent e;
	CUstream s;
	sem_t gate;

	new_context();
	sem_init(&gate, 0, 0);
	make(&s, CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
	OK(cuEventQuery(e)); /* never recorded: complete */
	OK(cuLaunchHostFunc(s, wait_at_gate, &gate));
	OK(cuEventRecord(e, s));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuEventQuery(e));
	sem_post(&gate);
	OK(cuEventSynchronize(e));
	OK(cuEventQuery(e));
	OK(cuStreamSynchronize(s));
	OK(cuStreamQuery(s));
}

static void elapsed(void)
{
	const struct timespec pause = { 0, 20 * 1000000 };
	CUevent a, b, untimed;
	sem_t gate;
	float ms;

	new_context();
	sem_init(&gate, 0, 0);
	OK(cuEventCreate(&a, 0));
	OK(cuEventCreate(&b, 0));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, b)); /* not recorded */
	OK(cuEventRecord(a, 0));
	OK(cuLaunchHostFunc(0, wait_at_gate, &gate));
	OK(cuEventRecord(b, 0));
	OK(cuEventRecord(untimed, 0));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, a, b));
	OK(cuEventSynchronize(a));
	nanosleep(&pause, NULL);
	sem_post(&gate);
	OK(cuCtxSynchronize());
	OK(cuEventElapsedTime(&ms, a, b));
	EXPECT(ms >= 20);
	OK(cuEventElapsedTime(&ms, b, a));
	EXPECT(ms <= -20);
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, a, untimed));
	OK(cuEventDestroy(a));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(a));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&a, 0x100));
}

/* What runs in t must see what ran in s before the event, and must not wait for what came after it. */
static void wait_event(void)
{
	sem_t first, second;
	uint32_t value = 0;
	CUdeviceptr p;
	CUstream s, t;
	CUevent e;

	new_context();
	sem_init(&first, 0, 0);
	sem_init(&second, 0, 0);
	OK(cuMemAlloc(&p, 4));
	OK(cuMemsetD32(p, 1, 1));
	make(&s, CU_STREAM_NON_BLOCKING);
	make(&t, CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuLaunchHostFunc(s, wait_at_gate, &first));
	OK(cuMemsetD32Async(p, 2, 1, s));
	OK(cuEventRecord(e, s));
	OK(cuLaunchHostFunc(s, wait_at_gate, &second));
	OK(cuStreamWaitEvent(t, e, 0));
	OK(cuEventRecord(e, s)); /* later: the wait is for the record before */
	OK(cuLaunchHostFunc(t, increment, &value));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(t));
	EXPECT(value == 0);
	sem_post(&first);
	OK(cuStreamSynchronize(t));
	EXPECT(value == 1);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	OK(cuMemcpyDtoHAsync(&value, p, 4, t));
	EXPECT(value == 2);
	sem_post(&second);
	OK(cuStreamSynchronize(s));
}

static void legacy_stream(void)
{
	CUstream blocking, other, free_stream;
	sem_t gate;
	int count = 0;

	new_context();
	sem_init(&gate, 0, 0);
	make(&blocking, CU_STREAM_DEFAULT);
	make(&other, CU_STREAM_DEFAULT);
	make(&free_stream, CU_STREAM_NON_BLOCKING);
	OK(cuLaunchHostFunc(blocking, wait_at_gate, &gate));
	OK(cuLaunchHostFunc(NULL, increment, &count));  /* waits for the blocking stream */
	OK(cuLaunchHostFunc(other, increment, &count)); /* waits for the default stream */
	OK(cuLaunchHostFunc(free_stream, increment, &count));
	OK(cuStreamSynchronize(free_stream));
	EXPECT(count == 1);
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	sem_post(&gate);
	OK(cuStreamSynchronize(other));
	EXPECT(count == 3);
	OK(cuLaunchHostFunc(other, wait_at_gate, &gate));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
	sem_post(&gate);
	OK(cuStreamSynchronize(NULL)); /* of the blocking streams, too */
	OK(cuStreamQuery(other));
}

typedef CUresult (*host_func_t)(CUstream, CUhostFn, void *);

struct own {
	CUcontext ctx;
	host_func_t launch;
	sem_t gate;
};

static void *hold_own_stream(void *arg)
{
	struct own *o = arg;

	OK(cuCtxSetCurrent(o->ctx));
	OK(o->launch(NULL, wait_at_gate, &o->gate));
	EXPECT_ERROR(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
	return NULL;
}

/* Each thread has a default stream of its own: one that is held does not hold another's. */
static void per_thread_stream(void)
{
	struct own o = { .ctx = new_context() };
	int count = 0;
	pthread_t t;
	void *f;

	sem_init(&o.gate, 0, 0);
	OK(cuGetProcAddress("cuLaunchHostFunc", &f, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	o.launch = (host_func_t)f;
	pthread_create(&t, NULL, hold_own_stream, &o);
	pthread_join(t, NULL);
	OK(o.launch(NULL, increment, &count));
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	EXPECT(count == 1);
	sem_post(&o.gate);
	OK(cuCtxSynchronize());
}

/* Pageable memory may be changed as soon as the call returns, page-locked memory may not. */
static void staging(void)
{
	uint32_t pageable = 1, result = 0, *pinned;
	CUdeviceptr p;
	CUstream s;
	sem_t gate;
	void *host;

	new_context();
	sem_init(&gate, 0, 0);
	make(&s, CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc(&p, 8));
	OK(cuMemAllocHost(&host, 4));
	pinned = host;
	*pinned = 1;
	OK(cuLaunchHostFunc(s, wait_at_gate, &gate));
	OK(cuMemcpyHtoDAsync(p, &pageable, 4, s));
	OK(cuMemcpyHtoDAsync(p + 4, pinned, 4, s));
	pageable = *pinned = 2;
	sem_post(&gate);
	OK(cuStreamSynchronize(s));
	OK(cuMemcpyDtoH(&result, p, 4));
	EXPECT(result == 1);
	OK(cuMemcpyDtoH(&result, p + 4, 4));
	EXPECT(result == 2);
}

static CUresult seen_in_callback, asked_in_callback;

static void callback(CUstream stream, CUresult status, void *data)
{
	int n;

	(void)stream;
	seen_in_callback = status;
	asked_in_callback = cuDeviceGetCount(&n);
	increment(data);
}

static void callbacks(void)
{
	int count = 0;

	new_context();
	seen_in_callback = CUDA_ERROR_UNKNOWN;
	OK(cuStreamAddCallback(NULL, callback, &count, 0));
	OK(cuCtxSynchronize());
	EXPECT(count == 1 && seen_in_callback == CUDA_SUCCESS);
	EXPECT(asked_in_callback == CUDA_ERROR_NOT_PERMITTED);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(NULL, NULL, NULL, 0));
}

/* A stream destroyed with work in it finishes that work. */
static void destroy_busy(void)
{
	int count = 0;
	CUstream s;
	CUevent e;
	sem_t gate;

	new_context();
	sem_init(&gate, 0, 0);
	make(&s, CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&e, 0));
	OK(cuLaunchHostFunc(s, wait_at_gate, &gate));
	OK(cuLaunchHostFunc(s, increment, &count));
	OK(cuEventRecord(e, s));
	OK(cuStreamDestroy(s));
	sem_post(&gate);
	OK(cuEventSynchronize(e));
	EXPECT(count == 1);
}

enum { THREADS = 8, ROUNDS = 60 };

static void *work(void *arg)
{
	uint32_t in[64], out[64];

	OK(cuCtxSetCurrent(arg));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CUdeviceptr p;
		CUstream s;
		CUevent e;

		make(&s, i % 2);
		OK(cuEventCreate(&e, 0));
		OK(cuMemAllocAsync(&p, sizeof(in) + i * 4096, s));
		for (uint32_t k = 0; k < 64; k++)
			in[k] = i * k;
		OK(cuMemcpyHtoDAsync(p, in, sizeof(in), s));
		OK(cuEventRecord(e, s));
		OK(cuMemcpyDtoHAsync(out, p, sizeof(out), s));
		EXPECT(!memcmp(in, out, sizeof(in)));
		OK(cuMemFreeAsync(p, s));
		OK(cuEventSynchronize(e));
		OK(cuEventDestroy(e));
		OK(cuStreamDestroy(s));
	}
	return NULL;
}

static void threads(void)
{
	size_t before, after, total;
	CUcontext ctx = new_context();
	pthread_t t[THREADS];

	OK(cuMemGetInfo(&before, &total));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, ctx);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	OK(cuCtxSynchronize());
	/* the frees of streams that are destroyed already may still be on their way */
	for (int i = 0; i < 1000; i++) {
		const struct timespec pause = { 0, 10 * 1000000 };

		OK(cuMemGetInfo(&after, &total));
		if (before == after)
			return;
		nanosleep(&pause, NULL);
	}
	FAIL("memory is missing: %zu before, %zu after", before, after);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "information", information }, { "overlap", overlap }, { "query", query },
		{ "elapsed", elapsed }, { "wait_event", wait_event }, { "legacy_stream", legacy_stream },
		{ "per_thread_stream", per_thread_stream }, { "staging", staging }, { "callbacks", callbacks },
		{ "destroy_busy", destroy_busy }, { "threads", threads }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
