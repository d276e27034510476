/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of arrays and textures. */
#ifndef VGPUMGR_CUDART_FORMAT_H
#define VGPUMGR_CUDART_FORMAT_H

#include "runtime.h"

cudaError_t rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format, unsigned int *channels) MUST_CHECK;
struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned int channels);
cudaError_t rt_made_of(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *made) MUST_CHECK;
cudaError_t rt_element_bytes(cudaArray_const_t array, size_t *bytes) MUST_CHECK;

#endif
