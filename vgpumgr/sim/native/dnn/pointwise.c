/* SPDX-License-Identifier: Apache-2.0 */
/* The pointwise modes (cudnnPointwiseMode_t). */
#include <math.h>

#include "pointwise.h"

enum {
	ADD = 0, MUL = 1, MIN = 2, MAX = 3, SQRT = 4, ADD_SQUARE = 5, DIV = 6, MOD = 7, POW = 8, SUB = 9, ABS = 10, CEIL = 11,
	COS = 12, EXP = 13, FLOOR = 14, LOG = 15, NEG = 16, RSQRT = 17, SIN = 18, TAN = 19, ERF = 20, IDENTITY = 21,
	RECIPROCAL = 22, ATAN2 = 23,
	RELU = 100, TANH = 101, SIGMOID = 102, ELU = 103, GELU = 104, SOFTPLUS = 105, SWISH = 106, GELU_TANH = 107,
	RELU_BWD = 200, GELU_TANH_BWD = 207,
	CMP_EQ = 300, CMP_NEQ = 301, CMP_GT = 302, CMP_GE = 303, CMP_LT = 304, CMP_LE = 305,
	AND = 400, OR = 401, NOT = 402, GEN_INDEX = 501, SELECT = 601,
};

static const double root_2_by_pi = 0.79788456080286535588, gelu_cubic = 0.044715;

int dn_pointwise_inputs(int mode)
{
	switch (mode) {
	case SQRT:
	case NOT:
	case GEN_INDEX:
		return 1;
	case SELECT:
		return 3;
	default:
		if ((mode >= ADD && mode <= SUB) || mode == ATAN2 || (mode >= CMP_EQ && mode <= CMP_LE) || mode == AND || mode == OR)
			return 2;
		if (dn_pointwise_is_gradient(mode))
			return 2;
		return (mode >= ABS && mode <= RECIPROCAL) || (mode >= RELU && mode <= GELU_TANH) ? 1 : 0;
	}
}

bool dn_pointwise_is_gradient(int mode)
{
	return mode >= RELU_BWD && mode <= GELU_TANH_BWD;
}

bool dn_pointwise_needs_axis(int mode)
{
	return mode == GEN_INDEX;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double normal(double x)
{
	return 0.5 * (1 + erf(x * M_SQRT1_2));
}

static double activate(const struct dn_pointwise *p, int mode, double x)
{
	double value;

	switch (mode) {
	case RELU:
		value = x < p->lower ? p->lower + p->slope * (x - p->lower) : x;
		return value > p->upper ? p->upper : value;
	case TANH:
		return tanh(x);
	case SIGMOID:
		return sigmoid(x);
	case ELU:
		return x < 0 ? p->elu * expm1(x) : x;
	case GELU:
		return x * normal(x);
	case SOFTPLUS: /* as the logarithm of a sum that cannot overflow */
		value = p->softplus * x;
		return (fmax(value, 0) + log1p(exp(-fabs(value)))) / p->softplus;
	case SWISH:
		return x * sigmoid(p->swish * x);
	default:
		return 0.5 * x * (1 + tanh(root_2_by_pi * (x + gelu_cubic * x * x * x)));
	}
}

/* The derivative of an activation at its input. */
static double differentiate(const struct dn_pointwise *p, int mode, double x)
{
	double s, t;

	switch (mode) {
	case RELU:
		return x <= p->lower ? p->slope : x >= p->upper ? 0 : 1;
	case TANH:
		t = tanh(x);
		return 1 - t * t;
	case SIGMOID:
		s = sigmoid(x);
		return s * (1 - s);
	case ELU:
		return x < 0 ? p->elu * exp(x) : 1;
	case GELU:
		return normal(x) + x * exp(-0.5 * x * x) * M_2_SQRTPI * M_SQRT1_2 / 2;
	case SOFTPLUS:
		return sigmoid(p->softplus * x);
	case SWISH:
		s = sigmoid(p->swish * x);
		return s + p->swish * x * s * (1 - s);
	default:
		t = tanh(root_2_by_pi * (x + gelu_cubic * x * x * x));
		return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_by_pi * (1 + 3 * gelu_cubic * x * x);
	}
}

static double compare(int mode, double x, double b)
{
	switch (mode) {
	case CMP_EQ:
		return x == b;
	case CMP_NEQ:
		return x != b;
	case CMP_GT:
		return x > b;
	case CMP_GE:
		return x >= b;
	case CMP_LT:
		return x < b;
	case CMP_LE:
		return x <= b;
	case AND:
		return x != 0 && b != 0;
	default:
		return x != 0 || b != 0;
	}
}

static double combine(int mode, double x, double b)
{
	switch (mode) {
	case ADD:
		return x + b;
	case MUL:
		return x * b;
	case MIN:
		return isnan(x) || x < b ? x : b;
	case MAX:
		return isnan(x) || x > b ? x : b;
	case ADD_SQUARE:
		return x + b * b;
	case DIV:
		return x / b;
	case MOD:
		return fmod(x, b);
	case POW:
		return pow(x, b);
	case SUB:
		return x - b;
	case ATAN2:
		return atan2(x, b);
	default:
		return compare(mode, x, b);
	}
}

static double map(int mode, double x)
{
	switch (mode) {
	case SQRT:
		return sqrt(x);
	case ABS:
		return fabs(x);
	case CEIL:
		return ceil(x);
	case COS:
		return cos(x);
	case EXP:
		return exp(x);
	case FLOOR:
		return floor(x);
	case LOG:
		return log(x);
	case NEG:
		return -x;
	case RSQRT:
		return 1 / sqrt(x);
	case SIN:
		return sin(x);
	case TAN:
		return tan(x);
	case ERF:
		return erf(x);
	case RECIPROCAL:
		return 1 / x;
	case NOT:
		return x == 0;
	default:
		return x;
	}
}

double dn_pointwise_compute(const struct dn_pointwise *p, double x, double b, double t, double index)
{
	x *= p->alpha1;
	b *= p->alpha2;
	if (p->mode == GEN_INDEX)
		return index;
	if (p->mode == SELECT)
		return t != 0 ? x : b;
	if (dn_pointwise_is_gradient(p->mode))
		return x * differentiate(p, p->mode - RELU_BWD + RELU, b);
	if (p->mode >= RELU && p->mode <= GELU_TANH)
		return activate(p, p->mode, x);
	return dn_pointwise_inputs(p->mode) == 2 ? combine(p->mode, x, b) : map(p->mode, x);
}
