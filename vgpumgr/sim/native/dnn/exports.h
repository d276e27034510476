/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuDNN, in plain types. */
#ifndef VGPUMGR_SIM_DNN_EXPORTS_H
#define VGPUMGR_SIM_DNN_EXPORTS_H

#include "dnn.h"

/* 9.24.0 */
enum { DN_VERSION = 92400 };

DN_EXPORT size_t cudnnGetVersion(void);
DN_EXPORT size_t cudnnGetCudartVersion(void);
DN_EXPORT size_t cudnnGetMaxDeviceVersion(void);
DN_EXPORT int cudnnGraphVersionCheck(void);
DN_EXPORT int cudnnOpsVersionCheck(void);
DN_EXPORT int cudnnCnnVersionCheck(void);
DN_EXPORT int cudnnAdvVersionCheck(void);
DN_EXPORT int cudnnGetProperty(int type, int *value);
DN_EXPORT const char *cudnnGetErrorString(int status);
DN_EXPORT void cudnnGetLastErrorString(char *message, size_t bytes);
DN_EXPORT int cudnnCreate(void **handle);
DN_EXPORT int cudnnDestroy(void *handle);
DN_EXPORT int cudnnSetStream(void *handle, void *stream);
DN_EXPORT int cudnnGetStream(void *handle, void **stream);
DN_EXPORT int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag);

DN_EXPORT int cudnnBackendCreateDescriptor(int type, void **descriptor);
DN_EXPORT int cudnnBackendDestroyDescriptor(void *descriptor);
DN_EXPORT int cudnnBackendInitialize(void *descriptor);
DN_EXPORT int cudnnBackendFinalize(void *descriptor);
DN_EXPORT int cudnnBackendSetAttribute(void *descriptor, int id, int type, int64_t count, const void *values);
DN_EXPORT int cudnnBackendGetAttribute(void *descriptor, int id, int type, int64_t wanted, int64_t *count, void *values);
DN_EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack);
DN_EXPORT int cudnnGetExecutionPlanWorkspaceSize(void *handle, void *plan, void *pack, size_t *bytes);

DN_EXPORT int cudnnCreateTensorDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyTensorDescriptor(void *descriptor);
DN_EXPORT int cudnnSetTensor4dDescriptor(void *descriptor, int format, int type, int n, int c, int h, int
		w);
DN_EXPORT int cudnnSetTensor4dDescriptorEx(void *descriptor, int type, int n, int c, int h, int w, int ns,
		int cs, int hs, int ws);
DN_EXPORT int cudnnSetTensorNdDescriptor(void *descriptor, int type, int nd, const int *dims, const int
		*strides);
DN_EXPORT int cudnnSetTensorNdDescriptorEx(void *descriptor, int format, int type, int nd, const int *dims);
DN_EXPORT int cudnnGetTensor4dDescriptor(const void *descriptor, int *type, int *n, int *c, int *h, int *w,
		int *ns, int *cs, int *hs, int *ws);
DN_EXPORT int cudnnGetTensorNdDescriptor(const void *descriptor, int wanted, int *type, int *nd, int *dims,
		int *strides);
DN_EXPORT int cudnnGetTensorSizeInBytes(const void *descriptor, size_t *bytes);
DN_EXPORT int cudnnCreateFilterDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyFilterDescriptor(void *descriptor);
DN_EXPORT int cudnnSetFilterNdDescriptor(void *descriptor, int type, int format, int nd, const int *dims);
DN_EXPORT int cudnnSetFilter4dDescriptor(void *descriptor, int type, int format, int k, int c, int h, int
		w);
DN_EXPORT int cudnnGetFilterNdDescriptor(const void *descriptor, int wanted, int *type, int *format, int
		*nd, int *dims);
DN_EXPORT int cudnnGetFilter4dDescriptor(const void *descriptor, int *type, int *format, int *k, int *c, int
		*h, int *w);
DN_EXPORT int cudnnGetFilterSizeInBytes(const void *descriptor, size_t *bytes);
DN_EXPORT int cudnnCreateActivationDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyActivationDescriptor(void *descriptor);
DN_EXPORT int cudnnSetActivationDescriptor(void *descriptor, int mode, int nan, double coefficient);
DN_EXPORT int cudnnGetActivationDescriptor(const void *descriptor, int *mode, int *nan, double
		*coefficient);
DN_EXPORT int cudnnSetActivationDescriptorSwishBeta(void *descriptor, double beta);
DN_EXPORT int cudnnGetActivationDescriptorSwishBeta(void *descriptor, double *beta);
DN_EXPORT int cudnnCreateConvolutionDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyConvolutionDescriptor(void *descriptor);
DN_EXPORT int cudnnSetConvolutionNdDescriptor(void *descriptor, int nd, const int *pads, const int *strides,
		const int *dilations, int mode, int compute);
DN_EXPORT int cudnnSetConvolution2dDescriptor(void *descriptor, int pad_h, int pad_w, int u, int v, int
		dilation_h, int dilation_w, int mode, int compute);
DN_EXPORT int cudnnSetConvolutionGroupCount(void *descriptor, int groups);
DN_EXPORT int cudnnSetConvolutionMathType(void *descriptor, int math);
DN_EXPORT int cudnnDeriveBNTensorDescriptor(void *derived, const void *x, int mode);
DN_EXPORT int cudnnBatchNormalizationForwardInference(void *handle, int mode, const void *alpha, const void
		*beta, const void *x_desc, const void *x, const void *y_desc, void *y, const void *parameters, const void
		*scale, const void *bias, const void *mean, const void *variance, double epsilon);
DN_EXPORT int cudnnBatchNormalizationForwardTrainingEx(void *handle, int mode, int ops, const void *alpha,
		const void *beta, const void *x_desc, const void *x, const void *z_desc, const void *z, const void *y_desc,
		void *y, const void *parameters, const void *scale, const void *bias, double factor, void *running_mean,
		void *running_variance, double epsilon, void *saved_mean, void *saved_deviation, void *activation, void
		*workspace, size_t workspace_bytes, void *reserve, size_t reserve_bytes);
DN_EXPORT int cudnnBatchNormalizationBackwardEx(void *handle, int mode, int ops, const void *alpha, const
		void *beta, const void *parameter_alpha, const void *parameter_beta, const void *x_desc, const void *x,
		const void *y_desc, const void *y, const void *dy_desc, const void *dy, const void *dz_desc, void *dz, const
		void *dx_desc, void *dx, const void *parameters, const void *scale, const void *bias, void *d_scale, void
		*d_bias, double epsilon, const void *saved_mean, const void *saved_deviation, void *activation, void
		*workspace, size_t workspace_bytes, void *reserve, size_t reserve_bytes);
DN_EXPORT int cudnnBatchNormalizationForwardTraining(void *handle, int mode, const void *alpha, const void
		*beta, const void *x_desc, const void *x, const void *y_desc, void *y, const void *parameters, const void
		*scale, const void *bias, double factor, void *running_mean, void *running_variance, double epsilon, void
		*saved_mean, void *saved_deviation);
DN_EXPORT int cudnnBatchNormalizationBackward(void *handle, int mode, const void *alpha, const void *beta,
		const void *parameter_alpha, const void *parameter_beta, const void *x_desc, const void *x, const void
		*dy_desc, const void *dy, const void *dx_desc, void *dx, const void *parameters, const void *scale, void
		*d_scale, void *d_bias, double epsilon, const void *saved_mean, const void *saved_deviation);
DN_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops,
		const void *x_desc, const void *z_desc, const void *y_desc, const void *parameters, const void *activation,
		size_t *bytes);
DN_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, const void
		*x_desc, const void *y_desc, const void *dy_desc, const void *dz_desc, const void *dx_desc, const void
		*parameters, const void *activation, size_t *bytes);
DN_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, const
		void *activation, const void *x_desc, size_t *bytes);
DN_EXPORT int cudnnGetConvolutionNdForwardOutputDim(const void *convolution, const void *x, const void *w,
		int nd, int *dims);
DN_EXPORT int cudnnGetConvolution2dForwardOutputDim(const void *convolution, const void *x, const void *w,
		int *n, int *c, int *height, int *width);
DN_EXPORT int cudnnGetConvolutionForwardAlgorithmMaxCount(void *handle, int *count);
DN_EXPORT int cudnnGetConvolutionBackwardDataAlgorithmMaxCount(void *handle, int *count);
DN_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(void *handle, int *count);
DN_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, const void *x, const void *w, const void
		*convolution, const void *y, int wanted, int *returned, void *results);
DN_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, const void *w, const void *dy, const
		void *convolution, const void *dx, int wanted, int *returned, void *results);
DN_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, const void *x, const void *dy,
		const void *convolution, const void *dw, int wanted, int *returned, void *results);
DN_EXPORT int cudnnFindConvolutionForwardAlgorithmEx(void *handle, const void *x_desc, const void *x, const
		void *w_desc, const void *w, const void *convolution, const void *y_desc, void *y, int wanted, int
		*returned, void *results, void *workspace, size_t bytes);
DN_EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, const void *w_desc, const void *w,
		const void *dy_desc, const void *dy, const void *convolution, const void *dx_desc, void *dx, int wanted, int
		*returned, void *results, void *workspace, size_t bytes);
DN_EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, const void *x_desc, const void *x,
		const void *dy_desc, const void *dy, const void *convolution, const void *dw_desc, void *dw, int wanted, int
		*returned, void *results, void *workspace, size_t bytes);
DN_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void *handle, const void *x, const void *w, const void
		*convolution, const void *y, int algorithm, size_t *bytes);
DN_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, const void *w, const void *dy,
		const void *convolution, const void *dx, int algorithm, size_t *bytes);
DN_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, const void *x, const void *dy,
		const void *convolution, const void *dw, int algorithm, size_t *bytes);
DN_EXPORT int cudnnConvolutionForward(void *handle, const void *alpha, const void *x_desc, const void *x,
		const void *w_desc, const void *w, const void *convolution, int algorithm, void *workspace, size_t bytes,
		const void *beta, const void *y_desc, void *y);
DN_EXPORT int cudnnConvolutionBackwardData(void *handle, const void *alpha, const void *w_desc, const void
		*w, const void *dy_desc, const void *dy, const void *convolution, int algorithm, void *workspace, size_t
		bytes, const void *beta, const void *dx_desc, void *dx);
DN_EXPORT int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, const void *x_desc, const void
		*x, const void *dy_desc, const void *dy, const void *convolution, int algorithm, void *workspace, size_t
		bytes, const void *beta, const void *dw_desc, void *dw);
DN_EXPORT int cudnnConvolutionBackwardBias(void *handle, const void *alpha, const void *dy_desc, const void
		*dy, const void *beta, const void *db_desc, void *db);
DN_EXPORT int cudnnConvolutionBiasActivationForward(void *handle, const void *alpha1, const void *x_desc,
		const void *x, const void *w_desc, const void *w, const void *convolution, int algorithm, void *workspace,
		size_t bytes, const void *alpha2, const void *z_desc, const void *z, const void *bias_desc, const void
		*bias, const void *activation, const void *y_desc, void *y);
DN_EXPORT int cudnnActivationForward(void *handle, const void *activation, const void *alpha, const void
		*x_desc, const void *x, const void *beta, const void *y_desc, void *y);
DN_EXPORT int cudnnActivationBackward(void *handle, const void *activation, const void *alpha, const void
		*y_desc, const void *y, const void *dy_desc, const void *dy, const void *x_desc, const void *x, const void
		*beta, const void *dx_desc, void *dx);
DN_EXPORT int cudnnAddTensor(void *handle, const void *alpha, const void *a_desc, const void *a, const void
		*beta, const void *c_desc, void *c);
DN_EXPORT int cudnnSetTensor(void *handle, const void *y_desc, void *y, const void *value);
DN_EXPORT int cudnnScaleTensor(void *handle, const void *y_desc, void *y, const void *alpha);
DN_EXPORT int cudnnSoftmaxForward(void *handle, int algorithm, int mode, const void *alpha, const void
		*x_desc, const void *x, const void *beta, const void *y_desc, void *y);
DN_EXPORT int cudnnSoftmaxBackward(void *handle, int algorithm, int mode, const void *alpha, const void
		*y_desc, const void *y, const void *dy_desc, const void *dy, const void *beta, const void *dx_desc, void
		*dx);
DN_EXPORT int cudnnCreatePoolingDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyPoolingDescriptor(void *descriptor);
DN_EXPORT int cudnnSetPoolingNdDescriptor(void *descriptor, int mode, int nan, int nd, const int *window,
		const int *padding, const int *stride);
DN_EXPORT int cudnnSetPooling2dDescriptor(void *descriptor, int mode, int nan, int height, int width, int
		pad_h, int pad_w, int stride_h, int stride_w);
DN_EXPORT int cudnnGetPoolingNdForwardOutputDim(const void *descriptor, const void *x, int nd, int *dims);
DN_EXPORT int cudnnGetPooling2dForwardOutputDim(const void *descriptor, const void *x, int *n, int *c, int
		*height, int *width);
DN_EXPORT int cudnnPoolingForward(void *handle, const void *descriptor, const void *alpha, const void
		*x_desc, const void *x, const void *beta, const void *y_desc, void *y);
DN_EXPORT int cudnnPoolingBackward(void *handle, const void *descriptor, const void *alpha, const void
		*y_desc, const void *y, const void *dy_desc, const void *dy, const void *x_desc, const void *x, const void
		*beta, const void *dx_desc, void *dx);
DN_EXPORT int cudnnCreateDropoutDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyDropoutDescriptor(void *descriptor);
DN_EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes);
DN_EXPORT int cudnnDropoutGetReserveSpaceSize(const void *x_desc, size_t *bytes);
DN_EXPORT int cudnnRestoreDropoutDescriptor(void *descriptor, void *handle, float rate, void *states, size_t
		bytes, unsigned long long seed);
DN_EXPORT int cudnnSetDropoutDescriptor(void *descriptor, void *handle, float rate, void *states, size_t
		bytes, unsigned long long seed);
DN_EXPORT int cudnnGetDropoutDescriptor(const void *descriptor, void *handle, float *rate, void **states,
		unsigned long long *seed);
DN_EXPORT int cudnnDropoutForward(void *handle, const void *descriptor, const void *x_desc, const void *x,
		const void *y_desc, void *y, void *reserve, size_t bytes);
DN_EXPORT int cudnnDropoutBackward(void *handle, const void *descriptor, const void *dy_desc, const void
		*dy, const void *dx_desc, void *dx, void *reserve, size_t bytes);
DN_EXPORT int cudnnTransformTensor(void *handle, const void *alpha, const void *x_desc, const void *x, const
		void *beta, const void *y_desc, void *y);
DN_EXPORT int cudnnCreateOpTensorDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyOpTensorDescriptor(void *descriptor);
DN_EXPORT int cudnnSetOpTensorDescriptor(void *descriptor, int kind, int compute, int nan);
DN_EXPORT int cudnnGetOpTensorDescriptor(const void *descriptor, int *kind, int *compute, int *nan);
DN_EXPORT int cudnnOpTensor(void *handle, const void *descriptor, const void *alpha1, const void *a_desc,
		const void *a, const void *alpha2, const void *b_desc, const void *b, const void *beta, const void *c_desc,
		void *c);
DN_EXPORT int cudnnCreateReduceTensorDescriptor(void **descriptor);
DN_EXPORT int cudnnDestroyReduceTensorDescriptor(void *descriptor);
DN_EXPORT int cudnnSetReduceTensorDescriptor(void *descriptor, int kind, int compute, int nan, int indices,
		int index_type);
DN_EXPORT int cudnnGetReduceTensorDescriptor(const void *descriptor, int *kind, int *compute, int *nan, int
		*indices, int *index_type);
DN_EXPORT int cudnnGetReductionIndicesSize(void *handle, const void *descriptor, const void *a_desc, const
		void *c_desc, size_t *bytes);
DN_EXPORT int cudnnGetReductionWorkspaceSize(void *handle, const void *descriptor, const void *a_desc, const
		void *c_desc, size_t *bytes);
DN_EXPORT int cudnnReduceTensor(void *handle, const void *descriptor, void *indices, size_t indices_bytes,
		void *workspace, size_t bytes, const void *alpha, const void *a_desc, const void *a, const void *beta, const
		void *c_desc, void *c);

#endif
