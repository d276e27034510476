/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuRAND that the guest has and a simulated machine; a cudaStream_t and values of enumerations are what they are to a caller. */
#ifndef RAND_EXPORTS_H
#define RAND_EXPORTS_H

#include <stddef.h>
#include <stdint.h>

#define RAND_API __attribute__((visibility("default")))

/* A curandGenerator_t. */
struct rand_generator;

RAND_API int curandCreateGenerator(struct rand_generator **generator, int type);
RAND_API int curandDestroyGenerator(struct rand_generator *generator);
RAND_API int curandGetVersion(int *version);
RAND_API int curandGetProperty(int type, int *value);

RAND_API int curandSetStream(struct rand_generator *generator, void *stream);
RAND_API int curandSetPseudoRandomGeneratorSeed(struct rand_generator *generator, unsigned long long seed);
RAND_API int curandSetGeneratorOffset(struct rand_generator *generator, unsigned long long offset);
RAND_API int curandSetGeneratorOrdering(struct rand_generator *generator, int order);
RAND_API int curandSetQuasiRandomGeneratorDimensions(struct rand_generator *generator, unsigned int dimensions);

RAND_API int curandGenerateSeeds(struct rand_generator *generator);
RAND_API int curandGenerate(struct rand_generator *generator, unsigned int *out, size_t count);
RAND_API int curandGenerateLongLong(struct rand_generator *generator, unsigned long long *out, size_t count);
RAND_API int curandGenerateUniform(struct rand_generator *generator, float *out, size_t count);
RAND_API int curandGenerateUniformDouble(struct rand_generator *generator, double *out, size_t count);
RAND_API int curandGenerateNormal(struct rand_generator *generator, float *out, size_t count, float mean, float deviation);
RAND_API int curandGenerateNormalDouble(struct rand_generator *generator, double *out, size_t count, double mean, double deviation);
RAND_API int curandGenerateLogNormal(struct rand_generator *generator, float *out, size_t count, float mean, float deviation);
RAND_API int curandGenerateLogNormalDouble(struct rand_generator *generator, double *out, size_t count, double mean, double deviation);
RAND_API int curandGeneratePoisson(struct rand_generator *generator, unsigned int *out, size_t count, double lambda);

#endif
