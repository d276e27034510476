/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log that cuLogs* read: one for each library that this is part of. It keeps the last 100 messages and no longer ones
 * than a line of 255 bytes, so no more than the 25,600 bytes of the vendor's. Callbacks run on the thread that logs, without
 * a lock. One that is unregistered meanwhile may be called once more.
 */
#ifndef VGPUMGR_CUDA_LOG_H
#define VGPUMGR_CUDA_LOG_H

#include <cuda.h>

/* One message; errno is as before. */
__attribute__((format(printf, 2, 3))) void cuda_log(CUlogLevel level, const char *format, ...);

/* In a child after fork: another thread of the parent may have held the lock. */
void cuda_log_forked(void);

/* The functions of the same meaning; a NULL iterator: from the oldest message on. */
CUresult cuda_log_register(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle);
CUresult cuda_log_unregister(CUlogsCallbackHandle handle);
CUresult cuda_log_current(CUlogIterator *iterator, unsigned int flags);
CUresult cuda_log_dump_file(CUlogIterator *iterator, const char *path, unsigned int flags);
CUresult cuda_log_dump_memory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags);

#endif
