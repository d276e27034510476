// SPDX-License-Identifier: Apache-2.0
// The toolkit's own functions on packed and narrow numbers. Each thread compares them with plain C and counts what differs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ void expect(int *wrong, bool right)
{
	if (!right)
		atomicAdd(wrong, 1);
}

__device__ unsigned scramble(unsigned n)
{
	n = (n ^ 61) ^ (n >> 16);
	n *= 9;
	n ^= n >> 4;
	n *= 0x27d4eb2d;
	return n ^ (n >> 15);
}

extern "C" __global__ void simd(int *wrong)
{
	unsigned a = scramble(threadIdx.x), b = scramble(threadIdx.x + 1000);

	for (int k = 0; k < 4; k++) {
		int x = (signed char)(a >> 8 * k), y = (signed char)(b >> 8 * k);
		unsigned u = a >> 8 * k & 255, v = b >> 8 * k & 255;

		expect(wrong, (__vadd4(a, b) >> 8 * k & 255) == (u + v & 255));
		expect(wrong, (__vaddus4(a, b) >> 8 * k & 255) == min(u + v, 255u));
		expect(wrong, (signed char)(__vsubss4(a, b) >> 8 * k) == max(-128, min(127, x - y)));
		expect(wrong, (__vabsdiffu4(a, b) >> 8 * k & 255) == (u > v ? u - v : v - u));
		expect(wrong, (__vavgu4(a, b) >> 8 * k & 255) == (u + v + 1) / 2);
		expect(wrong, (__vcmpgts4(a, b) >> 8 * k & 255) == (x > y ? 255u : 0u));
		expect(wrong, (__vsetltu4(a, b) >> 8 * k & 255) == (u < v));
		expect(wrong, (signed char)(__vabsss4(a) >> 8 * k) == min(127, abs(x)));
	}
	unsigned sum = 0, halves = 3;
	for (int k = 0; k < 4; k++)
		sum += abs((int)(a >> 8 * k & 255) - (int)(b >> 8 * k & 255));
	for (int k = 0; k < 32; k += 16)
		halves += abs((short)(a >> k) - (short)(b >> k));
	expect(wrong, __vsadu4(a, b) == sum);
	unsigned got;
	asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(got) : "r"(a), "r"(b), "r"(3));
	expect(wrong, got == sum + 3);
	asm("vabsdiff2.u32.s32.s32.add %0, %1, %2, %3;" : "=r"(got) : "r"(a), "r"(b), "r"(3));
	expect(wrong, got == halves);
	expect(wrong, __vimax3_s32(a, b, 5) == max(max((int)a, (int)b), 5));
	expect(wrong, (short)__vimax3_s16x2_relu(a, b, 5) == max(max((short)a, (short)b), 5));
}

extern "C" __global__ void fp8(int *wrong)
{
	unsigned n = threadIdx.x;
	__nv_fp8_e4m3 e4;
	__nv_fp8_e5m2 e5;

	e4.__x = n;
	e5.__x = n;
	// every number comes back, and the toolkit's own conversion without the instruction is a half's
	if ((n & 0x7f) != 0x7f)
		expect(wrong, __nv_fp8_e4m3((float)e4).__x == n);
	if ((n & 0x7f) < 0x7c)
		expect(wrong, __nv_fp8_e5m2((float)e5).__x == n && (float)e5 == __half2float(__ushort_as_half(n << 8)));
	__nv_fp8x2_e4m3 pair(make_float2(1.0625f + n, -500.0f));
	float2 back = (float2)pair;
	expect(wrong, back.y == -448.0f && fabsf(back.x - (1.0625f + n)) <= (1.0625f + n) / 16 + 1e-6f);
}

extern "C" __global__ void halves(int *wrong)
{
	float x = ((int)threadIdx.x - 128) / 32.0f, y = threadIdx.x / 16.0f - 3;
	__half2 h = __floats2half2_rn(x, y);
	__nv_bfloat162 b = __floats2bfloat162_rn(x, y);

	expect(wrong, fabsf(__high2float(h2exp2(h)) - exp2f(y)) <= exp2f(y) / 512);
	expect(wrong, fabsf(__low2float(h2tanh_approx(h)) - tanhf(x)) <= 1.0f / 512);
	expect(wrong, fabsf(__low2float(h2exp2(b)) - exp2f(__low2float(b))) <= exp2f(__low2float(b)) / 128);
	expect(wrong, __high2float(__heq2(h, h)) == 1.0f && __low2float(__hne2(h, h)) == 0.0f);
	expect(wrong, __hlt2_mask(h, __floats2half2_rn(x + 1, y - 1)) == 0xffff);
	expect(wrong, __low2float(__hmax2(h, __floats2half2_rn(0, 0))) == fmaxf(x, 0));
	expect(wrong, __hbge2(b, b) && !__hbne2(b, b));
	expect(wrong, fabsf(__low2float(h2rcp(__floats2half2_rn(x * x + 1, 1))) - 1 / (x * x + 1)) < 1.0f / 1024);
}
