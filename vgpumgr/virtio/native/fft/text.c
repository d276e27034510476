/* SPDX-License-Identifier: Apache-2.0 */
/* Versions: the host's library's, or what this one is here for where there is none. */
#include "fft.h"

enum { OWN_VERSION = VGPUMGR_FFT_MAJOR == 12 ? 120500 : 110401 };

static int version(void)
{
	uint64_t found = math_version(VG_MATH_FFT);

	return found ? (int)found : OWN_VERSION;
}

/* As CUFFT_VERSION: the major number times 1000. */
int cufftGetVersion(int *out)
{
	int v = version();

	if (!out)
		return FFT_INVALID_VALUE;
	*out = v / 10000 * 1000 + v % 10000 / 100 * 100 + v % 100;
	return FFT_OK;
}

int cufftGetProperty(int type, int *value)
{
	int v = version();

	if (!value || type < 0 || type > 2)
		return FFT_INVALID_VALUE;
	*value = type == 0 ? v / 10000 : type == 1 ? v / 100 % 100 : v % 100;
	return FFT_OK;
}
