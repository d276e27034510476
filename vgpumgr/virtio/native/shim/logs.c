/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's log: what this library has refused, and why there is no GPU. It needs no channel, and no cuInit. */
#include <cuda_log.h>

#include "shim.h"

SHIM_API CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData, CUlogsCallbackHandle *callback_out)
{
	return cuda_log_register(callbackFunc, userData, callback_out);
}

SHIM_API CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
	return cuda_log_unregister(callback);
}

SHIM_API CUresult cuLogsCurrent(CUlogIterator *iterator_out, unsigned int flags)
{
	return cuda_log_current(iterator_out, flags);
}

SHIM_API CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *pathToFile, unsigned int flags)
{
	return cuda_log_dump_file(iterator, pathToFile, flags);
}

SHIM_API CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
	return cuda_log_dump_memory(iterator, buffer, size, flags);
}
