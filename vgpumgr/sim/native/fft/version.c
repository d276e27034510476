/* SPDX-License-Identifier: Apache-2.0 */
/* Versions, of each release. */
#include "fft.h"

int cufftGetVersion(int *version)
{
	if (!version)
		return FT_INVALID_VALUE;
	*version = VERSION;
	return FT_SUCCESS;
}

/* MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL */
int cufftGetProperty(int type, int *value)
{
	if (!value || type < 0 || type > 2)
		return FT_INVALID_VALUE;
	*value = type == 0 ? VERSION / 1000 : type == 1 ? VERSION / 100 % 10 : VERSION % 100;
	return FT_SUCCESS;
}
