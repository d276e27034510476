/* SPDX-License-Identifier: Apache-2.0 */
/* What other calls must know of streams that capture. */
#ifndef VGPUMGR_SHIM_CAPTURE_H
#define VGPUMGR_SHIM_CAPTURE_H

#include "shim.h"

/* Begun by this process and not ended. */
extern _Atomic uint32_t shim_captures;
/* The error of what was posted just now, or before. */
CUresult shim_capture_settle(void);
/* Before a call that CUDA documents as potentially unsafe: an error where this thread may not make it now. */
CUresult shim_capture_safe(void);
/* Whether the stream captures; *r: what is wrong with it. */
bool shim_capturing(uint64_t context, uint64_t stream, CUresult *r);
/* For work that cannot be in a graph over this channel: an error, told once, if the stream captures. */
CUresult shim_capture_refuse(uint64_t context, uint64_t stream, const char *what, atomic_flag *told);
/* One was begun by this thread; false: out of memory. */
bool shim_capture_begun(uint64_t context, uint64_t stream, CUstreamCaptureMode mode);
/* It is not relaxed, so the thread that has begun it must end it; and that is not this one. */
bool shim_capture_is_of_another(uint64_t stream);
/* This thread's mode from now on; what it was. */
CUstreamCaptureMode shim_capture_exchange(CUstreamCaptureMode mode);
/* A stream or a context (the other is 0) is no more. */
void shim_capture_forget(uint64_t context, uint64_t stream);

#define SHIM_CAPTURE_REFUSE(context, stream, what)                          \
	({                                                                  \
		static atomic_flag told_ = ATOMIC_FLAG_INIT;                \
		shim_capture_refuse(context, stream, what, &told_);         \
	})

#endif
