/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that call the driver besides the runtime. */
#ifndef DRIVER_H
#define DRIVER_H

#include "check.h"

#include <cuda.h>

/* By the runtime, as programs that are not linked with the driver do it. */
template <typename F> static F *entry(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *function = nullptr;

	CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
	if (!function || found != cudaDriverEntryPointSuccess)
		FAIL("the driver has no %s", name);
	return (F *)function;
}
#define DRIVER(name) static const auto drv_##name = entry<decltype(name)>(#name)

#define DRIVE(call)                                                                                     \
	do {                                                                                            \
		CUresult result_ = (call);                                                              \
		if (result_ != CUDA_SUCCESS)                                                            \
			FAIL("line %d: %s: %d", __LINE__, #call, (int)result_);                         \
	} while (0)

#endif
