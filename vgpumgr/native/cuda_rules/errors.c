/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of CUresult values. */
#include "cuda_rules.h"

static const struct error {
	CUresult code;
	const char *name, *text;
} errors[] = {
#include "cuda_errors.inc"
};

static const struct error *find(CUresult code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return &errors[i];
	return NULL;
}

CUresult cuda_error_name(CUresult error, const char **name)
{
	const struct error *e = find(error);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = e ? e->name : NULL;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuda_error_string(CUresult error, const char **text)
{
	const struct error *e = find(error);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = e ? e->text : NULL;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
