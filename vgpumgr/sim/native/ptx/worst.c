/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VGPUMGR_SIM_APPROX=worst: approximate instructions are as wrong as the PTX ISA allows (chapters "Floating Point Instructions"
 * and "Half Precision Floating Point Instructions"), now above and now below, by the bits of what they are given. A program
 * that then fails relies on more than is promised. What the manual has in its tables (zeros, infinities, NaN) stays exact, and so
 * does what has no bound: subnormal results, angles beyond 100 pi.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "rounding.h"
#include "worst.h"

bool worst_wanted(void)
{
	const char *wish = getenv("VGPUMGR_SIM_APPROX");

	return wish && !strcmp(wish, "worst");
}

bool worst_is_up(uint32_t bits)
{
	return __builtin_parity(bits * 0x9e3779b1u >> 16);
}

/* The number of single precision that is farthest from v, within the bound. */
static float farthest(double v, double bound, bool up)
{
	double limit = up ? v + bound : v - bound;
	float f = (float)limit;

	if (up ? (double)f > limit : (double)f < limit)
		f = nextafterf(f, up ? -HUGE_VALF : HUGE_VALF);
	return isfinite(f) ? f : (float)v;
}

static double unit(double v)
{
	return ldexp(1, ilogb(v) - 23);
}

static double angle_bound(double a)
{
	return fabs(a) <= 2 * M_PI ? 0x1p-20 * M_SQRT1_2 : fabs(a) <= 100 * M_PI ? exp2(-14.7) : 0;
}

/* Of the result v of this function for a; as an absolute error. */
static double bound_of(enum approx function, double a, double v)
{
	switch (function) {
	case SIN:
	case COS:
		return angle_bound(a);
	case LG2:
		return a > 0.5 && a < 2 ? 0x1p-22 : 0x1p-22 * fabs(v);
	case EX2:
		return exp2(-22.5) * fabs(v);
	case RCP:
		return unit(v);
	case SQRT:
		return 0x1p-23 * fabs(v);
	case RSQRT:
		return exp2(-22.9) * fabs(v);
	default: /* TANH */
		return 0x1p-11 * fabs(v);
	}
}

static double value_of(enum approx function, double a)
{
	switch (function) {
	case SIN:
		return sin(a);
	case COS:
		return cos(a);
	case LG2:
		return log2(a);
	case EX2:
		return exp2(a);
	case RCP:
		return 1 / a;
	case SQRT:
		return sqrt(a);
	case RSQRT:
		return a == 0 ? copysign(HUGE_VAL, a) : 1 / sqrt(a);
	default: /* TANH */
		return tanh(a);
	}
}

float worst_single(enum approx function, float x)
{
	double a = (double)x, v = value_of(function, a);
	bool absolute = function <= LG2;

	if (a == 0 || !isfinite(a) || !isfinite(v) || (!absolute && fabs(v) < (double)FLT_MIN))
		return (float)v;
	return farthest(v, bound_of(function, a, v), worst_is_up((uint32_t)put_f32(x)));
}

float worst_quotient(float x, float y)
{
	double v = (double)x / (double)y;

	if (x == 0 || y == 0 || !isfinite(x) || !isfinite(y) || fabs(v) < (double)FLT_MIN || fabs(v) > (double)FLT_MAX ||
	    fabsf(y) < 0x1p-126f || fabsf(y) > 0x1p126f)
		return (float)v;
	return farthest(v, 2 * unit(v), worst_is_up((uint32_t)put_f32(x) ^ (uint32_t)put_f32(y)));
}
