/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions run here, in the guest, on one thread of ours for each device. The stream gets a gate in the worker: when the work
 * before it is done the worker names the gate, we run the function and open the gate, and the stream goes on.
 */
#include <pthread.h>
#include <stdlib.h>

#include "captures.h"
#include "hosts.h"

#ifdef __x86_64__
/* The version that every glibc has; the current one would keep this library off systems before 2.34. */
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#endif

struct gate {
	uint64_t id;
	struct gate *next;
	CUhostFn function;
	CUstreamCallback callback; /* the older form, told the stream and its status */
	CUstream stream;
	void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gate *gates;
static uint64_t last;
static bool running[SHIM_CHANNELS];
static _Atomic unsigned int due;

bool shim_host_functions(void)
{
	return atomic_load(&due);
}

static struct gate *take(uint64_t id)
{
	struct gate **at = &gates, *g;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	g = *at;
	if (g)
		*at = g->next;
	pthread_mutex_unlock(&lock);
	return g;
}

static void run(uint64_t id, CUresult status)
{
	struct vg_host_gate_open_request in = { .gate = id };
	struct gate *g = id & SHIM_GRAPH_GATE ? NULL : take(id);

	if (id & SHIM_GRAPH_GATE) {
		atomic_fetch_add(&due, 1);
		shim_host_run(id, status);
		atomic_fetch_sub(&due, 1);
	}
	if (g && g->callback)
		g->callback(g->stream, status, g->data);
	else if (g && status == CUDA_SUCCESS)
		g->function(g->data); /* not called on a lost context, as documented */
	if (g)
		atomic_fetch_sub(&due, 1);
	free(g);
	vg_send_host_gate_open(&in);
}

static void *serve(void *channel)
{
	SHIM_TURN(turn, shim_turn_to_channel((unsigned)(uintptr_t)channel));
	struct vg_host_gate_next_reply out;

	while (vg_send_host_gate_next(&out) == CUDA_SUCCESS)
		run(out.gate, out.status);
	pthread_mutex_lock(&lock);
	running[(uintptr_t)channel] = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

bool shim_start_thread(void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	return !error;
}

/* Under the lock. */
static bool start(unsigned channel)
{
	running[channel] = running[channel] || shim_start_thread(serve, (void *)(uintptr_t)channel);
	return running[channel];
}

bool shim_serve_gates(unsigned channel)
{
	bool serves;

	pthread_mutex_lock(&lock);
	serves = start(channel);
	pthread_mutex_unlock(&lock);
	return serves;
}

/* The older form is not for graphs, as documented. */
static CUresult capture(uint64_t context, uint64_t stream, const struct gate *what)
{
	struct shim_host host = { .kind = SHIM_HOST_FUNCTION, .context = context, .function = what->function,
				  .data = what->data };

	return what->callback ? SHIM_CAPTURE_REFUSE(context, stream, "cuStreamAddCallback in a captured stream") :
				shim_capture_host(stream, &host);
}

static CUresult enqueue(CUstream hStream, const struct gate *what)
{
	struct vg_host_gate_request in;
	struct gate *g;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r == CUDA_SUCCESS && shim_capturing(in.context, in.stream, &r))
		return capture(in.context, in.stream, what);
	if (r != CUDA_SUCCESS)
		return r;
	g = malloc(sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*g = *what;
	g->stream = hStream;
	pthread_mutex_lock(&lock);
	if (!start(shim_channel_of(in.context))) {
		pthread_mutex_unlock(&lock);
		free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	in.gate = g->id = ++last;
	g->next = gates;
	gates = g;
	atomic_fetch_add(&due, 1);
	pthread_mutex_unlock(&lock);
	r = vg_send_host_gate(&in);
	g = r == CUDA_SUCCESS ? NULL : take(in.gate);
	if (g)
		atomic_fetch_sub(&due, 1);
	free(g);
	return r;
}

SHIM_API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	struct gate g = { .function = fn, .data = userData };

	return fn ? enqueue(hStream, &g) : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	return cuLaunchHostFunc(hStream ? hStream : CU_STREAM_PER_THREAD, fn, userData);
}

SHIM_API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	struct gate g = { .callback = callback, .data = userData };

	return callback && !flags ? enqueue(hStream, &g) : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
					   unsigned int flags)
{
	return cuStreamAddCallback(hStream ? hStream : CU_STREAM_PER_THREAD, callback, userData, flags);
}

SHIM_API CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
	CUresult r = cuda_check_host_task(syncMode);

	return r == CUDA_SUCCESS ? cuLaunchHostFunc(hStream, fn, userData) : r;
}

SHIM_API CUresult cuLaunchHostFunc_v2_ptsz(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
	return cuLaunchHostFunc_v2(hStream ? hStream : CU_STREAM_PER_THREAD, fn, userData, syncMode);
}
