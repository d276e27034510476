/* SPDX-License-Identifier: Apache-2.0 */
/* Versions: the host's library's, or what this one is here for where there is none. */
#include "rand.h"

enum { OWN_VERSION = 100400 };

static int version(void)
{
	uint64_t found = math_version(VG_MATH_RAND);

	return found ? (int)found : OWN_VERSION;
}

/* As CURAND_VERSION: the major number times 1000. */
int curandGetVersion(int *out)
{
	int v = version();

	if (!out)
		return RAND_OUT_OF_RANGE;
	*out = v / 10000 * 1000 + v % 10000 / 100 * 100 + v % 100;
	return RAND_OK;
}

int curandGetProperty(int type, int *value)
{
	int v = version();

	if (!value || type < 0 || type > 2)
		return RAND_OUT_OF_RANGE;
	*value = type == 0 ? v / 10000 : type == 1 ? v / 100 % 100 : v % 100;
	return RAND_OK;
}
