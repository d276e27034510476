/* SPDX-License-Identifier: Apache-2.0 */
/* Half precision by instructions alone, so that no header of the toolkit's is needed. */
extern "C" __global__ void halves(const float *in, float *out)
{
	int i = threadIdx.x;
	unsigned short h, s, b;
	unsigned pair, one;
	float back;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(in[i]));
	asm("cvt.f32.f16 %0, %1;" : "=f"(out[4 * i]) : "h"(h));
	asm("fma.rn.f16 %0, %1, %1, %1;" : "=h"(s) : "h"(h));
	asm("cvt.f32.f16 %0, %1;" : "=f"(out[4 * i + 1]) : "h"(s));
	asm("mov.b32 %0, {%1, %1};" : "=r"(pair) : "h"(h));
	asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(one) : "f"(1.0f));
	asm("add.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(one));
	asm("{ .reg .b16 low; mov.b32 {low, %0}, %1; }" : "=h"(s) : "r"(pair));
	asm("cvt.f32.f16 %0, %1;" : "=f"(out[4 * i + 2]) : "h"(s));
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(in[i]));
	asm("mov.b32 %0, {%1, %2};" : "=f"(back) : "h"((unsigned short)0), "h"(b));
	out[4 * i + 3] = back;
}
