/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of calls that the channel cannot do: as errors, and to the person at the terminal. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_log.h>

#include "shim.h"
#include "vg_stubs.h"

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

int shim_refuse(const char *name)
{
	struct vg_call_refused_request in = { .called = { name, strlen(name) } };

	if (shim_open_conn(shim_channel()) && in.called.length <= 39) /* as the description has it */
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

/* As above, for the runtime library, whose calls are named in the same way. */
SHIM_API int vgpumgr_call_unsupported(const char *name, atomic_flag *told)
{
	return shim_unsupported(name, told);
}
