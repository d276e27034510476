/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as the runtime and as the driver describe them, and what an array is made of. */
#include "format.h"

cudaError_t rt_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format, unsigned int *channels)
{
	const int bits[] = { desc->x, desc->y, desc->z, desc->w };
	static const CUarray_format formats[][3] = {
		[cudaChannelFormatKindSigned] = { CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT32 },
		[cudaChannelFormatKindUnsigned] = { CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16,
						    CU_AD_FORMAT_UNSIGNED_INT32 },
		[cudaChannelFormatKindFloat] = { 0, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT },
	};
	int place = bits[0] == 8 ? 0 : bits[0] == 16 ? 1 : bits[0] == 32 ? 2 : -1;

	if ((unsigned int)desc->f > cudaChannelFormatKindNone)
		return cudaErrorNotSupported;
	for (*channels = 0; *channels < 4 && bits[*channels]; (*channels)++)
		if (bits[*channels] != bits[0])
			return cudaErrorInvalidChannelDescriptor;
	for (unsigned int i = *channels; i < 4; i++)
		if (bits[i])
			return cudaErrorInvalidChannelDescriptor;
	if (desc->f == cudaChannelFormatKindNone || place < 0 || *channels == 3)
		return cudaErrorInvalidChannelDescriptor;
	*format = formats[desc->f][place];
	return *format ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
}

struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned int channels)
{
	enum cudaChannelFormatKind kind = cudaChannelFormatKindUnsigned;
	int bits[4] = { 0 }, size = 8;

	switch (format) {
	case CU_AD_FORMAT_SIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT32:
		kind = cudaChannelFormatKindSigned;
		break;
	case CU_AD_FORMAT_HALF:
	case CU_AD_FORMAT_FLOAT:
		kind = cudaChannelFormatKindFloat;
		break;
	default:
		break;
	}
	if (format == CU_AD_FORMAT_SIGNED_INT16 || format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_HALF)
		size = 16;
	if (format == CU_AD_FORMAT_SIGNED_INT32 || format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_FLOAT)
		size = 32;
	for (unsigned int i = 0; i < channels && i < 4; i++)
		bits[i] = size;
	return (struct cudaChannelFormatDesc){ bits[0], bits[1], bits[2], bits[3], kind };
}

cudaError_t rt_made_of(cudaArray_const_t array, CUDA_ARRAY3D_DESCRIPTOR *made)
{
	return array ? RT_CALL(cuArray3DGetDescriptor, made, (CUarray)array) : cudaErrorInvalidValue;
}

cudaError_t rt_element_bytes(cudaArray_const_t array, size_t *bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR made;
	cudaError_t error = rt_made_of(array, &made);

	if (error == cudaSuccess)
		*bytes = (size_t)rt_channels(made.Format, 1).x / 8 * made.NumChannels;
	return error;
}
