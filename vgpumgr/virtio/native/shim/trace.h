/* SPDX-License-Identifier: Apache-2.0 */
/* VGPUMGR_TRACE=waits: each wait of this process for the host is a line on standard error. */
#ifndef VGPUMGR_TRACE_H
#define VGPUMGR_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* From when the library is loaded on. */
extern bool shim_traces;

uint64_t shim_trace_now(void);
/* What this thread's operations are part of, until the next; NULL: nothing but themselves. */
void shim_trace_of(const char *name);
/* A wait for an operation has ended; `since` as shim_trace_now() was when it began. */
void shim_trace_wait(uint32_t op, uint64_t since);

#endif
