/* SPDX-License-Identifier: Apache-2.0 */
/* One process's connections, and what a fork does to them. */
#include "channels.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_log.h>

#include "shim.h"
#include "vg_interface.h"

static struct {
	pthread_mutex_t lock;
	_Atomic(struct vg_conn *) conn[SHIM_CHANNELS];
	_Atomic unsigned count;
	uint32_t device[SHIM_CHANNELS];
	_Atomic bool initialized;
	_Atomic bool forked;      /* a child of an initialised process: CUDA is of no use here */
	bool atfork;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void child(void)
{
	pthread_mutex_init(&state.lock, NULL); /* another thread of the parent may have held it */
	cuda_log_forked();
	if (!atomic_exchange(&state.count, 0))
		return;
	atomic_store(&state.forked, true);
	for (unsigned i = 0; i < SHIM_CHANNELS; i++)
		vg_conn_close(atomic_exchange(&state.conn[i], NULL));
}

bool shim_is_news(atomic_flag *told)
{
	const char *quiet = secure_getenv("VGPUMGR_QUIET");

	return !(quiet && *quiet) && !atomic_flag_test_and_set(told);
}

/* CUDA has one code for all reasons why there is no device; the person at the terminal gets ours, once. */
static void tell_why(const char *what)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	cuda_log(CU_LOG_LEVEL_ERROR, "%s: %s", what, vg_conn_error());
	if (shim_is_news(&told))
		dprintf(STDERR_FILENO, "vgpumgr: %s: %s\n", what, vg_conn_error());
}

/* Under the lock. */
static int connect_first(void)
{
	struct shim_visible visible = { 0 };
	int error = shim_open_visible(&vg_interface, &visible);

	if (error)
		return error;
	for (unsigned i = 0; i < visible.count; i++) {
		state.device[i] = visible.device[i];
		atomic_store(&state.conn[i], visible.conn[i]);
	}
	shim_turns_by_device(visible.count > 1);
	atomic_store(&state.count, visible.count);
	return 0;
}

CUresult shim_connect(void)
{
	int error = 0;

	if (atomic_load(&state.forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&state.count))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&state.lock);
	if (!atomic_load(&state.count))
		error = connect_first();
	/* after the transport's own: handlers of the child run in this order, and ours closes the connections */
	if (!error && !state.atfork)
		state.atfork = !pthread_atfork(NULL, NULL, child);
	pthread_mutex_unlock(&state.lock);
	if (!error)
		return CUDA_SUCCESS;
	tell_why("no GPU for this process");
	return error == -EPROTO ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_NO_DEVICE;
}

static struct vg_conn *connect_channel(unsigned channel, CUresult *why)
{
	struct vg_conn *conn;
	char what[40];
	int error = 0;

	pthread_mutex_lock(&state.lock);
	conn = atomic_load(&state.conn[channel]);
	if (!conn)
		error = vg_conn_open_device(&vg_interface, VGPUMGR_VERSION, state.device[channel], &conn);
	if (!error)
		atomic_store(&state.conn[channel], conn);
	pthread_mutex_unlock(&state.lock);
	if (!error)
		return conn;
	snprintf(what, sizeof(what), "device %u cannot be used", channel);
	tell_why(what);
	*why = error == -EPROTO ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_DEVICE_UNAVAILABLE;
	return NULL;
}

struct vg_conn *shim_conn(unsigned channel, CUresult *why)
{
	struct vg_conn *conn = atomic_load_explicit(&state.conn[channel], memory_order_acquire);

	*why = CUDA_ERROR_NOT_INITIALIZED;
	if (__builtin_expect(!conn, 0) && channel < atomic_load(&state.count))
		conn = connect_channel(channel, why);
	return conn;
}

struct vg_conn *shim_open_conn(unsigned channel)
{
	return atomic_load(&state.conn[channel]);
}

unsigned shim_channels(void)
{
	return atomic_load(&state.count);
}

/* ---- whether the program has called cuInit() */

void shim_mark_initialized(void)
{
	atomic_store(&state.initialized, true);
}

CUresult shim_ready(void)
{
	if (atomic_load_explicit(&state.forked, memory_order_relaxed))
		return CUDA_ERROR_NOT_INITIALIZED;
	return atomic_load_explicit(&state.initialized, memory_order_acquire) ? CUDA_SUCCESS :
										CUDA_ERROR_NOT_INITIALIZED;
}

/* For tests and benchmarks: synchronous waits of this process so far. */
SHIM_API uint64_t vgpumgr_channel_waits(void)
{
	uint64_t waits = 0;

	for (unsigned i = 0; i < SHIM_CHANNELS; i++) {
		struct vg_conn *conn = shim_open_conn(i);

		waits += conn ? vg_conn_waits(conn) : 0;
	}
	return waits;
}
