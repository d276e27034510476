/* SPDX-License-Identifier: Apache-2.0 */
/* Versions, of each release. */
#include "solver.h"

SV_API(cusolverGetVersion, int *version)
{
	if (!version)
		return SV_INVALID_VALUE;
	*version = VERSION;
	return SV_SUCCESS;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
SV_API(cusolverGetProperty, int type, int *value)
{
	if (!value || type < 0 || type > 2)
		return SV_INVALID_VALUE;
	*value = type == 0 ? VERSION / 1000 : type == 1 ? VERSION / 100 % 10 : VERSION % 100;
	return SV_SUCCESS;
}
