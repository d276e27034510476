// SPDX-License-Identifier: Apache-2.0
// wmma in every element type and shape, as programs write it: d = 2 * (a * b + c).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda::wmma;

template <int M, int N, int K, class Type, class Sum, class In, class Out>
__device__ void multiply(const In *a, const In *b, const Out *c, Out *d, bool by_row, int pad)
{
	fragment<matrix_a, M, N, K, Type, row_major> fa;
	fragment<matrix_b, M, N, K, Type, col_major> fb;
	fragment<accumulator, M, N, K, Sum> fc, fd;
	layout_t layout = by_row ? mem_row_major : mem_col_major;

	load_matrix_sync(fa, a, K);
	load_matrix_sync(fb, b, K + pad);
	load_matrix_sync(fc, c, by_row ? N : M, layout);
	mma_sync(fd, fa, fb, fc);
	for (int i = 0; i < fd.num_elements; i++)
		fd.x[i] = fd.x[i] + fd.x[i];
	store_matrix_sync(d, fd, by_row ? N : M, layout);
}

#define KERNEL(name, M, N, K, type, sum, in, out, by_row, pad)                                                      \
	extern "C" __global__ void name(const in *a, const in *b, const out *c, out *d)                             \
	{                                                                                                            \
		multiply<M, N, K, type, sum>(a, b, c, d, by_row, pad);                                               \
	}

KERNEL(half_to_float, 16, 16, 16, half, float, half, float, true, 16)
KERNEL(half_to_half, 32, 8, 16, half, half, half, half, false, 16)
KERNEL(half_wide, 8, 32, 16, half, half, half, half, true, 16)
KERNEL(bfloat, 8, 32, 16, __nv_bfloat16, float, __nv_bfloat16, float, true, 16)
KERNEL(bfloat_tall, 32, 8, 16, __nv_bfloat16, float, __nv_bfloat16, float, false, 16)
KERNEL(signed_bytes, 16, 16, 16, signed char, int, signed char, int, true, 16)
KERNEL(unsigned_bytes, 32, 8, 16, unsigned char, int, unsigned char, int, true, 16)
KERNEL(wide_bytes, 8, 32, 16, signed char, int, signed char, int, false, 16)
KERNEL(doubles, 8, 8, 4, double, double, double, double, false, 16)
KERNEL(tensor_floats, 16, 16, 8, precision::tf32, float, float, float, true, 16)
KERNEL(nibbles, 8, 8, 32, experimental::precision::s4, int, int, int, true, 0)

extern "C" __global__ void bits(const unsigned *a, const unsigned *b, const int *c, int *d)
{
	fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> fa;
	fragment<matrix_b, 8, 8, 128, experimental::precision::b1, col_major> fb;
	fragment<accumulator, 8, 8, 128, int> fc;

	load_matrix_sync(fa, a, 128);
	load_matrix_sync(fb, b, 128);
	load_matrix_sync(fc, c, 8, mem_row_major);
	bmma_sync(fc, fa, fb, fc, experimental::bmmaBitOpAND);
	for (int i = 0; i < fc.num_elements; i++)
		fc.x[i] = fc.x[i] + fc.x[i];
	store_matrix_sync(d, fc, 8, mem_row_major);
}
