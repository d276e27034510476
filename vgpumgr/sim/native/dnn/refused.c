/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that programs are linked with and that are not simulated: without them PyTorch would not start. Whatever their
 * arguments are, they answer CUDNN_STATUS_NOT_SUPPORTED.
 */
#include "dnn.h"

#define REFUSED(name) \
	DN_EXPORT int name(void); \
	int name(void) \
	{ \
		return dn_fail(DN_NOT_SUPPORTED, #name " is not simulated"); \
	}

REFUSED(cudnnCTCLoss)
REFUSED(cudnnCTCLoss_v8)
REFUSED(cudnnCreateCTCLossDescriptor)
REFUSED(cudnnCreateRNNDataDescriptor)
REFUSED(cudnnCreateRNNDescriptor)
REFUSED(cudnnCreateSpatialTransformerDescriptor)
REFUSED(cudnnDestroyCTCLossDescriptor)
REFUSED(cudnnDestroyRNNDataDescriptor)
REFUSED(cudnnDestroyRNNDescriptor)
REFUSED(cudnnDestroySpatialTransformerDescriptor)
REFUSED(cudnnGetCTCLossWorkspaceSize)
REFUSED(cudnnGetCTCLossWorkspaceSize_v8)
REFUSED(cudnnGetRNNTempSpaceSizes)
REFUSED(cudnnGetRNNWeightParams)
REFUSED(cudnnGetRNNWeightSpaceSize)
REFUSED(cudnnRNNBackwardData_v8)
REFUSED(cudnnRNNBackwardWeights_v8)
REFUSED(cudnnRNNForward)
REFUSED(cudnnSetCTCLossDescriptorEx)
REFUSED(cudnnSetCTCLossDescriptor_v9)
REFUSED(cudnnSetRNNDataDescriptor)
REFUSED(cudnnSetRNNDescriptor_v8)
REFUSED(cudnnSetSpatialTransformerNdDescriptor)
REFUSED(cudnnSpatialTfGridGeneratorBackward)
REFUSED(cudnnSpatialTfGridGeneratorForward)
REFUSED(cudnnSpatialTfSamplerBackward)
REFUSED(cudnnSpatialTfSamplerForward)
