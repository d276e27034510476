/* SPDX-License-Identifier: Apache-2.0 */
/* LU without exchanges. */
#include "blas.h"

int bl_factor_plain(void *a, int type, int64_t m, int64_t n, int64_t ld)
{
	int info = 0;

	for (int64_t k = 0; k < m && k < n; k++) {
		double complex pivot = bl_load(a, type, k * ld + k);

		if (pivot == 0) {
			info = info ? info : (int)k + 1;
			continue;
		}
		for (int64_t i = k + 1; i < m; i++)
			bl_store(a, type, k * ld + i, bl_load(a, type, k * ld + i) / pivot);
		for (int64_t j = k + 1; j < n; j++)
			for (int64_t i = k + 1; i < m; i++)
				bl_store(a, type, j * ld + i,
					 bl_load(a, type, j * ld + i) - bl_load(a, type, k * ld + i) * bl_load(a, type, j * ld + k));
	}
	return info;
}
