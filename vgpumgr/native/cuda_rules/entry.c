/* SPDX-License-Identifier: Apache-2.0 */
/* How a program finds functions: by name and version. Private tables do not exist. */
#include <string.h>

#include "cuda_rules.h"

/* *newer: the name is known, but only of a later version. */
static void *find(const struct cuda_proc *table, size_t count, const char *symbol, int version, bool per_thread,
		  bool *newer)
{
	const struct cuda_proc *best = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct cuda_proc *p = &table[i];

		if (p->per_thread != per_thread || strcmp(p->name, symbol))
			continue;
		if (p->version > version)
			*newer = true;
		else if (!best || p->version > best->version)
			best = p;
	}
	return best ? best->address : NULL;
}

CUresult cuda_find_proc(const struct cuda_proc *table, size_t count, const char *symbol, int version, cuuint64_t flags,
			void **function, CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	CUdriverProcAddressQueryResult unused;
	bool newer = false;

	if (!symbol || !function || flags & ~known || flags == known)
		return CUDA_ERROR_INVALID_VALUE;
	status = status ? status : &unused;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	*function = NULL;
	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		*function = find(table, count, symbol, version, true, &newer);
	if (!*function)
		*function = find(table, count, symbol, version, false, &newer);
	if (*function)
		return CUDA_SUCCESS;
	*status = newer ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuda_export_table(const void **table, const CUuuid *id)
{
	static const unsigned char runtime[] = { 0x6b, 0xd5, 0xfb, 0x6c };

	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return memcmp(id->bytes, runtime, sizeof(runtime)) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_SUPPORTED;
}
