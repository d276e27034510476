/* SPDX-License-Identifier: Apache-2.0 */
/* Poisson's distribution by inversion: a uniform number is searched among the sums of all that is not next to impossible. */
#include <math.h>
#include <stdlib.h>

#include "rand.h"

/* The distribution is left out where it is below 2^-53 by far. */
enum { DEVIATIONS = 12, LEAST = 60 };

bool rd_poisson_begin(struct rd_poisson *p, double lambda)
{
	double reach = DEVIATIONS * sqrt(lambda), sum = 0;

	p->first = lambda > reach ? (unsigned int)(lambda - reach) : 0;
	p->count = (unsigned int)(lambda + reach) + LEAST - p->first;
	p->sums = malloc(p->count * sizeof(*p->sums));
	if (!p->sums)
		return false;
	for (unsigned int i = 0; i < p->count; i++) {
		double k = p->first + i;

		sum += exp(k * log(lambda) - lambda - lgamma(k + 1));
		p->sums[i] = sum;
	}
	return true;
}

unsigned int rd_poisson_of(const struct rd_poisson *p, double uniform)
{
	unsigned int low = 0, high = p->count - 1;

	while (low < high) {
		unsigned int middle = low + (high - low) / 2;

		if (p->sums[middle] < uniform)
			low = middle + 1;
		else
			high = middle;
	}
	return p->first + low;
}

void rd_poisson_end(struct rd_poisson *p)
{
	free(p->sums);
}
