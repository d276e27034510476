/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lane's window once more, at another address and registered with the driver: a copy to the host goes there straight,
 * without the driver's own staging, and without holding up who asks for it. Copies to the device read the window where the
 * driver knows nothing of it, because only then it has read the data when its call returns.
 */
#include <sys/mman.h>
#include <time.h>

#include "session.h"

enum {
	COPIES_BEFORE = 2,        /* a process that copies once is not worth the time that it takes */
	BRIEFLY_NS = 30000,       /* what a kernel of average length takes, and much less than a sleep */
};

static struct {
	pthread_mutex_t lock;
	uint8_t *alias;           /* of the whole window */
	unsigned copies;
	bool hopeless;
	_Atomic bool ready;
} window = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The registration ends with the context that it was made in. */
static bool is_registered(void)
{
	unsigned flags;

	return window.alias && wk_driver.cuMemHostGetFlags(&flags, window.alias) == CUDA_SUCCESS;
}

static bool register_window(uint8_t *start, size_t size)
{
	void *alias = window.alias;

	if (!alias)
		alias = mremap(start, 0, size, MREMAP_MAYMOVE); /* shared memory: a second mapping of it, see mremap(2) */
	if (alias == MAP_FAILED)
		return false;
	window.alias = alias;
	return wk_driver.cuMemHostRegister_v2(alias, size, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
}

bool wk_window_ready(void)
{
	return atomic_load_explicit(&window.ready, memory_order_acquire);
}

void *wk_window_target(struct wk_call *c)
{
	size_t size;
	uint8_t *start = vg_lane_window(c->lane, &size);
	bool ready;

	if (!start)
		return c->call->bulk_out; /* over the serial stream, where no window is ready */
	pthread_mutex_lock(&window.lock);
	ready = is_registered();
	if (!ready && !window.hopeless && ++window.copies >= COPIES_BEFORE) {
		ready = register_window(start, size);
		window.hopeless = !ready;
	}
	atomic_store_explicit(&window.ready, ready, memory_order_release);
	pthread_mutex_unlock(&window.lock);
	c->unfinished = c->reader && !ready;
	return ready ? window.alias + ((uint8_t *)c->call->bulk_out - start) : c->call->bulk_out;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * What kernels have printed comes out at a wait, and not when one asks (CUDA C++ Programming Guide, Formatted Output): so the
 * wait follows also where there is nothing to wait for.
 */
static CUresult wait_for(struct wk_call *c, CUresult (*ask)(void *), CUresult (*wait)(void *), void *object)
{
	uint64_t end;
	CUresult r;

	if (!c->reader)
		return wait(object);
	end = now_ns() + BRIEFLY_NS;
	do
		r = ask(object);
	while (r == CUDA_ERROR_NOT_READY && now_ns() < end);
	c->unfinished = r == CUDA_ERROR_NOT_READY;
	return c->unfinished ? CUDA_SUCCESS : r == CUDA_SUCCESS ? wait(object) : r;
}

static CUresult ask_stream(void *stream)
{
	return wk_driver.cuStreamQuery(stream);
}

static CUresult await_stream(void *stream)
{
	return wk_driver.cuStreamSynchronize(stream);
}

static CUresult ask_event(void *event)
{
	return wk_driver.cuEventQuery(event);
}

static CUresult await_event(void *event)
{
	return wk_driver.cuEventSynchronize(event);
}

CUresult wk_wait_stream(struct wk_call *c, CUstream stream)
{
	return wait_for(c, ask_stream, await_stream, stream);
}

CUresult wk_wait_event(struct wk_call *c, CUevent event)
{
	return wait_for(c, ask_event, await_event, event);
}
