/* SPDX-License-Identifier: Apache-2.0 */
/* cuRAND without numbers: generators are made and end, and all else succeeds at once. */
#include <stdatomic.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, TYPE_ERROR = 103, OUT_OF_RANGE = 104, MOST_DIMENSIONS = 20000 };

/* Generators that were made and have not ended. */
static atomic_ulong live;

API unsigned long null_randoms_live(void);
unsigned long null_randoms_live(void)
{
	return atomic_load(&live);
}

API int curandCreateGenerator(void **generator, int type);
int curandCreateGenerator(void **generator, int type)
{
	static int any;

	if (type < 100 || type > 204)
		return TYPE_ERROR;
	*generator = &any;
	atomic_fetch_add(&live, 1);
	return OK;
}

API int curandDestroyGenerator(void *generator);
int curandDestroyGenerator(void *generator)
{
	(void)generator;
	atomic_fetch_sub(&live, 1);
	return OK;
}

API int curandGetProperty(int number, int *value);
int curandGetProperty(int number, int *value)
{
	*value = number == 0 ? 10 : number == 1 ? 4 : 0;
	return OK;
}

API int curandSetQuasiRandomGeneratorDimensions(void *generator, unsigned int dimensions);
int curandSetQuasiRandomGeneratorDimensions(void *generator, unsigned int dimensions)
{
	(void)generator;
	return dimensions && dimensions <= MOST_DIMENSIONS ? OK : OUT_OF_RANGE;
}
