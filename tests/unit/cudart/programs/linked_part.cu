/* SPDX-License-Identifier: Apache-2.0 */
/* The other half of linked.cu. */
__device__ int offset = 5;

__device__ int twice(int value)
{
	return 2 * value;
}
