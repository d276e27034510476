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
REFUSED(cudnnConvolutionBackwardData)
REFUSED(cudnnConvolutionBackwardFilter)
REFUSED(cudnnConvolutionBiasActivationForward)
REFUSED(cudnnConvolutionForward)
REFUSED(cudnnCreateCTCLossDescriptor)
REFUSED(cudnnCreateDropoutDescriptor)
REFUSED(cudnnCreatePoolingDescriptor)
REFUSED(cudnnCreateRNNDataDescriptor)
REFUSED(cudnnCreateRNNDescriptor)
REFUSED(cudnnCreateSpatialTransformerDescriptor)
REFUSED(cudnnDestroyCTCLossDescriptor)
REFUSED(cudnnDestroyDropoutDescriptor)
REFUSED(cudnnDestroyRNNDataDescriptor)
REFUSED(cudnnDestroyRNNDescriptor)
REFUSED(cudnnDestroySpatialTransformerDescriptor)
REFUSED(cudnnDropoutGetStatesSize)
REFUSED(cudnnFindConvolutionBackwardDataAlgorithmEx)
REFUSED(cudnnFindConvolutionBackwardFilterAlgorithmEx)
REFUSED(cudnnFindConvolutionForwardAlgorithmEx)
REFUSED(cudnnGetCTCLossWorkspaceSize)
REFUSED(cudnnGetCTCLossWorkspaceSize_v8)
REFUSED(cudnnGetConvolutionBackwardDataAlgorithm_v7)
REFUSED(cudnnGetConvolutionBackwardDataWorkspaceSize)
REFUSED(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
REFUSED(cudnnGetConvolutionBackwardFilterWorkspaceSize)
REFUSED(cudnnGetConvolutionForwardAlgorithm_v7)
REFUSED(cudnnGetConvolutionForwardWorkspaceSize)
REFUSED(cudnnGetRNNTempSpaceSizes)
REFUSED(cudnnGetRNNWeightParams)
REFUSED(cudnnGetRNNWeightSpaceSize)
REFUSED(cudnnPoolingForward)
REFUSED(cudnnRNNBackwardData_v8)
REFUSED(cudnnRNNBackwardWeights_v8)
REFUSED(cudnnRNNForward)
REFUSED(cudnnRestoreDropoutDescriptor)
REFUSED(cudnnSetCTCLossDescriptorEx)
REFUSED(cudnnSetCTCLossDescriptor_v9)
REFUSED(cudnnSetDropoutDescriptor)
REFUSED(cudnnSetPooling2dDescriptor)
REFUSED(cudnnSetRNNDataDescriptor)
REFUSED(cudnnSetRNNDescriptor_v8)
REFUSED(cudnnSetSpatialTransformerNdDescriptor)
REFUSED(cudnnSpatialTfGridGeneratorBackward)
REFUSED(cudnnSpatialTfGridGeneratorForward)
REFUSED(cudnnSpatialTfSamplerBackward)
REFUSED(cudnnSpatialTfSamplerForward)
