/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's log: what this driver refuses with a sentence. */
#include "cuda_sim.h"

#include <cuda_log.h>

CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle)
{
	return cuda_log_register(callback, data, handle);
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle)
{
	return cuda_log_unregister(handle);
}

CUresult cuLogsCurrent(CUlogIterator *iterator, unsigned int flags)
{
	return cuda_log_current(iterator, flags);
}

CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *path, unsigned int flags)
{
	return cuda_log_dump_file(iterator, path, flags);
}

CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	return cuda_log_dump_memory(iterator, buffer, size, flags);
}
