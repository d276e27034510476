/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions run here, in the guest, on one thread of ours. The stream gets a gate in the worker: when the work
 * before it is done the worker names the gate, we run the function and open the gate, and the stream goes on.
 */
#include <pthread.h>
#include <stdlib.h>

#include "shim.h"

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
static bool running;

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
	struct gate *g = take(id);

	if (g && g->callback)
		g->callback(g->stream, status, g->data);
	else if (g && status == CUDA_SUCCESS)
		g->function(g->data); /* not called on a lost context, as documented */
	free(g);
	vg_send_host_gate_open(&in);
}

static void *serve(void *unused)
{
	struct vg_host_gate_next_reply out;

	(void)unused;
	while (vg_send_host_gate_next(&out) == CUDA_SUCCESS)
		run(out.gate, out.status);
	pthread_mutex_lock(&lock);
	running = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Under the lock. */
static bool start(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (running)
		return true;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	running = !pthread_create(&thread, &attributes, serve, NULL);
	pthread_attr_destroy(&attributes);
	return running;
}

static CUresult enqueue(CUstream hStream, const struct gate *what)
{
	struct vg_host_gate_request in;
	struct gate *g;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS)
		r = shim_stream(hStream, &in.context, &in.stream);
	if (r != CUDA_SUCCESS)
		return r;
	g = malloc(sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*g = *what;
	g->stream = hStream;
	pthread_mutex_lock(&lock);
	if (!start()) {
		pthread_mutex_unlock(&lock);
		free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	in.gate = g->id = ++last;
	g->next = gates;
	gates = g;
	pthread_mutex_unlock(&lock);
	r = vg_send_host_gate(&in);
	if (r != CUDA_SUCCESS)
		free(take(in.gate));
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
