/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuFFT that are implemented; a cudaStream_t and values of enumerations are what they are to a caller. */
#ifndef VGPUMGR_FFT_EXPORTS_H
#define VGPUMGR_FFT_EXPORTS_H

#include <stddef.h>
#include <stdint.h>

#define FFT_API __attribute__((visibility("default")))

FFT_API int cufftCreate(int *plan);
FFT_API int cufftDestroy(int plan);
FFT_API int cufftSetStream(int plan, void *stream);
FFT_API int cufftSetWorkArea(int plan, void *area);
FFT_API int cufftSetAutoAllocation(int plan, int allocate);
FFT_API int cufftGetSize(int plan, size_t *bytes);
FFT_API int cufftSetPlanPropertyInt64(int plan, int property, int64_t value);
FFT_API int cufftGetPlanPropertyInt64(int plan, int property, int64_t *value);
FFT_API int cufftResetPlanProperty(int plan, int property);
FFT_API int cufftGetVersion(int *version);
FFT_API int cufftGetProperty(int type, int *value);

FFT_API int cufftPlan1d(int *plan, int nx, int type, int batch);
FFT_API int cufftPlan2d(int *plan, int nx, int ny, int type);
FFT_API int cufftPlan3d(int *plan, int nx, int ny, int nz, int type);
FFT_API int cufftPlanMany(int *plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride,
			  int out_distance, int type, int batch);

/* Functions that make a plan, and those that tell the size of one. */
#define FFT_DESCRIBED(verb)                                                                                                      \
	FFT_API int cufft##verb##1d(int plan, int nx, int type, int batch, size_t *bytes);                                       \
	FFT_API int cufft##verb##2d(int plan, int nx, int ny, int type, size_t *bytes);                                          \
	FFT_API int cufft##verb##3d(int plan, int nx, int ny, int nz, int type, size_t *bytes);                                  \
	FFT_API int cufft##verb##Many(int plan, int rank, int *n, int *in, int in_stride, int in_distance, int *out,             \
				      int out_stride, int out_distance, int type, int batch, size_t *bytes);                     \
	FFT_API int cufft##verb##Many64(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,     \
					int64_t *out, int64_t out_stride, int64_t out_distance, int type, int64_t batch,         \
					size_t *bytes);                                                                          \
	FFT_API int cufftXt##verb##Many(int plan, int rank, int64_t *n, int64_t *in, int64_t in_stride, int64_t in_distance,     \
					int in_type, int64_t *out, int64_t out_stride, int64_t out_distance, int out_type,       \
					int64_t batch, size_t *bytes, int execution_type);
FFT_DESCRIBED(MakePlan)
FFT_DESCRIBED(GetSize)

FFT_API int cufftEstimate1d(int nx, int type, int batch, size_t *bytes);
FFT_API int cufftEstimate2d(int nx, int ny, int type, size_t *bytes);
FFT_API int cufftEstimate3d(int nx, int ny, int nz, int type, size_t *bytes);
FFT_API int cufftEstimateMany(int rank, int *n, int *in, int in_stride, int in_distance, int *out, int out_stride, int out_distance,
			      int type, int batch, size_t *bytes);

FFT_API int cufftXtExec(int plan, void *in, void *out, int direction);
FFT_API int cufftExecC2C(int plan, void *in, void *out, int direction);
FFT_API int cufftExecZ2Z(int plan, void *in, void *out, int direction);
FFT_API int cufftExecR2C(int plan, void *in, void *out);
FFT_API int cufftExecC2R(int plan, void *in, void *out);
FFT_API int cufftExecD2Z(int plan, void *in, void *out);
FFT_API int cufftExecZ2D(int plan, void *in, void *out);

#endif
