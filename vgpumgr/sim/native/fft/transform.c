/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discrete Fourier transforms: mixed radices for lengths of small primes (Cooley and Tukey), and a convolution with a chirp for
 * any other (Bluestein).
 */
#include <math.h>
#include <stdlib.h>

#include "fft.h"

enum { LARGEST_RADIX = 13 };

struct line {
	int64_t n, padded;           /* padded: 0 unless it is a convolution */
	double complex *roots;       /* of unity: n of them, or `padded` */
	double complex *chirp, *filter, *space, *more; /* of a convolution */
};

static const double pi = 3.14159265358979323846;

static int64_t smallest_factor(int64_t n)
{
	for (int64_t p = 2; p * p <= n; p++)
		if (n % p == 0)
			return p;
	return n;
}

static bool is_smooth(int64_t n)
{
	for (int64_t p = 2; p <= LARGEST_RADIX; p++)
		while (n % p == 0)
			n /= p;
	return n == 1;
}

static double complex root(int64_t k, int64_t n, int sign)
{
	double angle = 2 * pi * (double)k / (double)n;

	return CMPLX(cos(angle), sign * sin(angle));
}

/* roots[k * step] is exp(2 pi i k / n); size: of all roots */
static void mixed(int64_t n, const double complex *in, int64_t stride, double complex *out, const double complex *roots, int64_t step,
		  int64_t size)
{
	int64_t p = n > 1 ? smallest_factor(n) : 1, m = n / p;
	double complex parts[LARGEST_RADIX];

	if (n == 1) {
		out[0] = in[0];
		return;
	}
	for (int64_t q = 0; q < p; q++)
		mixed(m, in + q * stride, stride * p, out + q * m, roots, step * p, size);
	for (int64_t k = 0; k < m; k++) {
		for (int64_t q = 0; q < p; q++)
			parts[q] = out[q * m + k] * roots[q * k * step % size];
		for (int64_t r = 0; r < p; r++) {
			double complex sum = 0;

			for (int64_t q = 0; q < p; q++)
				sum += parts[q] * roots[q * r * m % n * step % size];
			out[k + r * m] = sum;
		}
	}
}

static void end_line(struct line *l)
{
	free(l->roots);
	free(l->chirp);
	free(l->filter);
	free(l->space);
	free(l->more);
}

static bool begin_roots(struct line *l, int64_t n, int sign)
{
	l->roots = malloc((size_t)n * sizeof *l->roots);
	for (int64_t k = 0; l->roots && k < n; k++)
		l->roots[k] = root(k, n, sign);
	return l->roots;
}

static bool begin_chirp(struct line *l, int sign)
{
	size_t bytes = (size_t)l->padded * sizeof *l->chirp;

	l->chirp = malloc((size_t)l->n * sizeof *l->chirp);
	l->filter = calloc(1, bytes);
	l->space = malloc(bytes);
	l->more = malloc(bytes);
	if (!l->chirp || !l->filter || !l->space || !l->more)
		return false;
	for (int64_t k = 0; k < l->n; k++) {
		l->chirp[k] = root((int64_t)((__int128)k * k % (2 * l->n)), 2 * l->n, sign);
		l->space[k] = conj(l->chirp[k]);
	}
	for (int64_t k = l->n; k < l->padded; k++)
		l->space[k] = 0;
	for (int64_t k = 1; k < l->n; k++)
		l->space[l->padded - k] = conj(l->chirp[k]);
	mixed(l->padded, l->space, 1, l->filter, l->roots, 1, l->padded);
	return true;
}

static bool begin_line(struct line *l, int64_t n, int sign)
{
	*l = (struct line){ .n = n };
	if (is_smooth(n))
		return begin_roots(l, n, sign);
	l->padded = 1;
	while (l->padded < 2 * n - 1)
		l->padded *= 2;
	return begin_roots(l, l->padded, FT_FORWARD) && begin_chirp(l, sign);
}

static void convolve(const struct line *l, const double complex *in, double complex *out)
{
	for (int64_t k = 0; k < l->padded; k++)
		l->space[k] = k < l->n ? in[k] * l->chirp[k] : 0;
	mixed(l->padded, l->space, 1, l->more, l->roots, 1, l->padded);
	/* back by the same roots: the conjugate of the transform of the conjugate */
	for (int64_t k = 0; k < l->padded; k++)
		l->space[k] = conj(l->more[k] * l->filter[k]);
	mixed(l->padded, l->space, 1, l->more, l->roots, 1, l->padded);
	for (int64_t k = 0; k < l->n; k++)
		out[k] = conj(l->more[k]) / (double)l->padded * l->chirp[k];
}

/* A row of a transform to real numbers: its other half is the conjugate of the first. */
static void complete(double complex *row, int64_t n)
{
	row[0] = creal(row[0]);
	if (n % 2 == 0)
		row[n / 2] = creal(row[n / 2]);
	for (int64_t k = n / 2 + 1; k < n; k++)
		row[k] = conj(row[n - k]);
}

struct rows {
	int64_t n, stride, inner, outer; /* inner rows begin side by side, outer ones n * stride apart */
	bool completed;
};

static int transform_rows(const struct rows *r, int direction, double complex *data)
{
	double complex *in = malloc(2 * (size_t)r->n * sizeof *in), *out = in + r->n;
	struct line line = { .n = 0 };
	bool good = in && begin_line(&line, r->n, direction);

	for (int64_t i = 0; good && i < r->outer * r->inner; i++) {
		double complex *row = data + i / r->inner * r->n * r->stride + i % r->inner;

		for (int64_t k = 0; k < r->n; k++)
			in[k] = row[k * r->stride];
		if (r->completed)
			complete(in, r->n);
		if (line.padded)
			convolve(&line, in, out);
		else
			mixed(r->n, in, 1, out, line.roots, 1, r->n);
		for (int64_t k = 0; k < r->n; k++)
			row[k * r->stride] = out[k];
	}
	end_line(&line);
	free(in);
	return good ? FT_SUCCESS : FT_ALLOC_FAILED;
}

int ft_transform(const struct ft_shape *s, int direction, double complex *data)
{
	int64_t outer = s->batch, inner = s->n[1] * s->n[2];
	int status = FT_SUCCESS;

	for (int d = 0; d < FT_RANK && status == FT_SUCCESS; d++) {
		struct rows rows = { s->n[d], inner, inner, outer, d == FT_RANK - 1 && !bl_is_complex(s->out.type) };

		if (s->n[d] > 1 || rows.completed)
			status = transform_rows(&rows, direction, data);
		outer *= s->n[d];
		inner /= d < FT_RANK - 1 ? s->n[d + 1] : 1;
	}
	return status;
}
