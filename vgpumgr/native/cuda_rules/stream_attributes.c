/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of streams: which there are, what each may be, and what one answers that was never set. */
#include <string.h>

#include "cuda_rules.h"

void cuda_stream_attributes_init(struct cuda_stream_attributes *s, int priority)
{
	*s = (struct cuda_stream_attributes){ .priority = priority, .policy = CU_SYNC_POLICY_AUTO, .domains = { 0, 1 } };
}

/* NaN is in no range. */
static bool is_window(const CUaccessPolicyWindow *w)
{
	return w->hitRatio >= 0 && w->hitRatio <= 1 && (unsigned int)w->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned int)w->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

CUresult cuda_stream_attribute_set(struct cuda_stream_attributes *s, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		if (!is_window(&value->accessPolicyWindow))
			return CUDA_ERROR_INVALID_VALUE;
		s->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		if (value->syncPolicy < CU_SYNC_POLICY_AUTO || value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
			return CUDA_ERROR_INVALID_VALUE;
		s->policy = value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		s->priority = value->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		s->domains = value->memSyncDomainMap;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		if ((unsigned int)value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
			return CUDA_ERROR_INVALID_VALUE;
		s->domain = value->memSyncDomain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_stream_attribute_get(const struct cuda_stream_attributes *s, CUstreamAttrID id, CUstreamAttrValue *value)
{
	memset(value, 0, sizeof(*value));
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = s->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = s->policy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = s->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = s->domains;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = s->domain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
