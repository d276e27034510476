/* SPDX-License-Identifier: Apache-2.0 */
/* Which release of NVIDIA's libraries these stand for: the only difference between those of 12 and 13. */
#include "blas.h"

int bl_version(void)
{
	return VERSION;
}
