/* SPDX-License-Identifier: Apache-2.0 */
/* One process's connection, and what it knows about it. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_log.h>

#include "shim.h"
#include "vg_interface.h"
#include "vg_stubs.h"

static struct {
	pthread_mutex_t lock;
	_Atomic(struct vg_conn *) conn;
	_Atomic bool initialized;
	_Atomic bool forked;      /* a child of an initialised process: CUDA is of no use here */
	bool atfork;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void child(void)
{
	struct vg_conn *conn = atomic_exchange(&state.conn, NULL);

	pthread_mutex_init(&state.lock, NULL); /* another thread of the parent may have held it */
	cuda_log_forked();
	if (!conn)
		return;
	atomic_store(&state.forked, true);
	vg_conn_close(conn);
}

CUresult shim_channel_error(int error)
{
	switch (error) {
	case -EPROTO:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	case -ENOTCONN:
		return CUDA_ERROR_NO_DEVICE;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -EMSGSIZE:
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_DEVICE_UNAVAILABLE; /* the worker is gone, and with it every context */
	}
}

bool shim_is_news(atomic_flag *told)
{
	const char *quiet = secure_getenv("VGPUMGR_QUIET");

	return !(quiet && *quiet) && !atomic_flag_test_and_set(told);
}

int shim_refuse(const char *name)
{
	struct vg_call_refused_request in = { .called = { name, strlen(name) } };

	if (atomic_load(&state.conn) && in.called.length <= 39) /* as the description has it */
		vg_send_call_refused(&in);
	return CUDA_ERROR_NOT_SUPPORTED;
}

int shim_unsupported(const char *name, atomic_flag *told)
{
	int saved = errno;

	shim_refuse(name);
	cuda_log(CU_LOG_LEVEL_ERROR, "%s is not supported over a forwarded GPU", name);
	if (shim_is_news(told))
		dprintf(STDERR_FILENO, "vgpumgr: %s is not supported over a forwarded GPU\n", name);
	errno = saved;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_first_refusal(uint32_t op)
{
	static _Atomic uint64_t refused[(1 << 16) / 64]; /* by the operation's id */
	uint64_t bit = 1ull << op % 64;

	return !(atomic_fetch_or(&refused[op / 64 % (sizeof(refused) / 8)], bit) & bit);
}

CUresult shim_refuse_operation(uint32_t op)
{
	atomic_flag said = ATOMIC_FLAG_INIT;
	int saved = errno;

	/* telling the host is an operation, too, and may be refused */
	if (op != VG_OP_call_refused)
		cuda_log(CU_LOG_LEVEL_ERROR, "%s is not supported: the host's worker does not have it", vg_sent_name(op));
	if (is_first_refusal(op) && op != VG_OP_call_refused) {
		shim_refuse(vg_sent_name(op));
		if (shim_is_news(&said))
			dprintf(STDERR_FILENO, "vgpumgr: %s is not supported: the host's worker does not have it as these "
				"guest libraries (%s) do\n", vg_sent_name(op), VGPUMGR_VERSION);
	}
	errno = saved;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult shim_frame_error(uint32_t op, int error)
{
	return error == -EOPNOTSUPP ? shim_refuse_operation(op) : shim_channel_error(error);
}

/* CUDA has one code for all reasons why there is no device; the person at the terminal gets ours, once. */
static void tell_why(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	cuda_log(CU_LOG_LEVEL_ERROR, "no GPU for this process: %s", vg_conn_error());
	if (!shim_is_news(&told))
		return;
	dprintf(STDERR_FILENO, "vgpumgr: no GPU for this process: %s\n", vg_conn_error());
}

CUresult shim_connect(void)
{
	struct vg_conn *conn = NULL;
	int error = 0;

	if (atomic_load(&state.forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&state.conn))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&state.lock);
	if (!atomic_load(&state.conn)) {
		error = shim_open_visible(&vg_interface, &conn);
		if (!error)
			atomic_store(&state.conn, conn);
	}
	/* after the transport's own: handlers of the child run in this order, and ours closes the connection */
	if (!error && !state.atfork)
		state.atfork = !pthread_atfork(NULL, NULL, child);
	pthread_mutex_unlock(&state.lock);
	if (!error)
		return CUDA_SUCCESS;
	tell_why();
	return error == -EPROTO ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_ERROR_NO_DEVICE;
}

struct vg_conn *shim_conn(CUresult *why)
{
	struct vg_conn *conn = atomic_load_explicit(&state.conn, memory_order_acquire);

	*why = CUDA_ERROR_NOT_INITIALIZED;
	return conn;
}

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

/* As above, for the runtime library, whose calls are named in the same way. */
SHIM_API int vgpumgr_call_unsupported(const char *name, atomic_flag *told)
{
	return shim_unsupported(name, told);
}

/* For tests and benchmarks: synchronous waits of this process so far. */
SHIM_API uint64_t vgpumgr_channel_waits(void)
{
	struct vg_conn *conn = atomic_load(&state.conn);

	return conn ? vg_conn_waits(conn) : 0;
}
