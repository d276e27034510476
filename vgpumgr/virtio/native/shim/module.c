/* SPDX-License-Identifier: Apache-2.0 */
/* Modules. A function comes with its attributes and its parameter table, once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "output.h"
#include "shim.h"

static CUresult load(struct shim_jit *jit, const void *image, uint64_t *id)
{
	struct vg_module_load_request in = { .options = { jit->words, 16 * jit->count } };
	struct vg_module_load_reply *out = malloc(sizeof(*out));
	const void *start;
	size_t length = shim_image_length(image, &start);
	struct shim_object *o = NULL;
	CUresult r = shim_enter(&in.context);

	if (!out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		r = length ? shim_upload(start, length, &in.upload) : CUDA_ERROR_INVALID_IMAGE;
	if (r == CUDA_SUCCESS && !(o = shim_object_new(SHIM_MODULE, in.context, id)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS) {
		in.created = *id;
		in.info_log_bytes = shim_jit_room(jit->info, jit->info_bytes);
		in.error_log_bytes = shim_jit_room(jit->error, jit->error_bytes);
		r = vg_send_module_load(&in, out);
		shim_jit_log(out->info_log, out->info_log_length, jit->info, jit->info_bytes);
		shim_jit_log(out->error_log, out->error_log_length, jit->error, jit->error_bytes);
	}
	if (r == CUDA_SUCCESS) {
		atomic_store(&o->module.library, 0);
		shim_object_publish(o, *id);
	} else if (o) {
		shim_object_recycle(SHIM_MODULE, *id);
	}
	free(out);
	return r;
}

CUresult shim_module(CUmodule module, uint64_t *context, uint64_t *id)
{
	struct shim_object *o = shim_object_get(SHIM_MODULE, (uint64_t)module);

	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = o->context;
	*id = (uint64_t)module;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
				     CUjit_option *options, void **optionValues)
{
	struct shim_jit jit;
	uint64_t id;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS)
		r = module && image ? shim_jit_read(&jit, numOptions, options, optionValues) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = load(&jit, image, &id);
	if (r == CUDA_SUCCESS)
		*module = (CUmodule)id;
	return r;
}

SHIM_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SHIM_API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

SHIM_API CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	void *image = NULL;
	CUresult r = shim_ready();

	if (r == CUDA_SUCCESS && (!module || !fname))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_file(fname, &image, NULL);
	if (r == CUDA_SUCCESS)
		r = cuModuleLoadDataEx(module, image, 0, NULL, NULL);
	free(image);
	return r;
}

SHIM_API CUresult cuModuleUnload(CUmodule hmod)
{
	struct vg_module_unload_request in = { .module = (uint64_t)hmod };
	struct shim_object *o, *f;
	uint32_t at = 0;
	uint64_t id;
	CUresult r = shim_ready();

	if (r != CUDA_SUCCESS)
		return r;
	o = shim_object_get(SHIM_MODULE, in.module);
	if (!o || !shim_object_retire(o, in.module))
		return CUDA_ERROR_INVALID_HANDLE;
	in.context = o->context;
	r = vg_send_module_unload(&in);
	shim_range_forget(SHIM_RANGE_DEVICE, in.module);
	while ((f = shim_object_next(SHIM_FUNCTION, in.module, &at))) {
		id = atomic_load(&f->id);
		if (!id || f->function.module != in.module || !shim_object_retire(f, id))
			continue;
		shim_function_free(f);
		shim_object_recycle(SHIM_FUNCTION, id);
	}
	shim_object_recycle(SHIM_MODULE, in.module);
	return r;
}

static CUresult fill_function(struct shim_object *o, const char *name, const struct vg_module_function_reply *out)
{
	struct shim_object *context = shim_object_get(SHIM_CONTEXT, o->context);
	uint32_t n = out->attributes_length / sizeof(int), end;

	if (!context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	o->function.name = strdup(name);
	o->function.parameters_count = out->parameters_length / sizeof(struct shim_parameter);
	o->function.parameters = malloc(out->parameters_length + 1);
	if (!o->function.name || !o->function.parameters) {
		shim_function_free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(o->function.parameters, out->parameters, out->parameters_length);
	o->function.attributes_count = n < SHIM_FUNCTION_ATTRIBUTES ? n : SHIM_FUNCTION_ATTRIBUTES;
	memset(o->function.attributes, 0, sizeof(o->function.attributes));
	memcpy(o->function.attributes, out->attributes, o->function.attributes_count * sizeof(int));
	o->function.parameters_bytes = 0;
	for (uint32_t i = 0; i < o->function.parameters_count; i++) {
		end = o->function.parameters[i].offset + o->function.parameters[i].size;
		if (end > o->function.parameters_bytes)
			o->function.parameters_bytes = end;
	}
	shim_set_launch_limits(o, context->ctx.device);
	return CUDA_SUCCESS;
}

static struct shim_object *known(uint64_t module, const char *name, uint64_t *id)
{
	struct shim_object *f;
	uint32_t at = 0;

	while ((f = shim_object_next(SHIM_FUNCTION, module, &at))) {
		*id = atomic_load(&f->id);
		if (*id && f->function.module == module && f->function.name && !strcmp(f->function.name, name))
			return f;
	}
	return NULL;
}

static CUresult ask_function(const struct vg_module_function_request *in, struct shim_object *o)
{
	struct vg_module_function_reply *out = malloc(sizeof(*out));
	CUresult r;

	if (!out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shim_output_expect();
	r = vg_send_module_function(in, out);
	if (r == CUDA_SUCCESS)
		r = fill_function(o, in->name.data, out);
	free(out);
	return r;
}

SHIM_API CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct vg_module_function_request in;
	struct shim_object *o;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && (!hfunc || !name || !*name))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_module(hmod, &in.context, &in.module);
	if (r != CUDA_SUCCESS)
		return r;
	if (known(in.module, name, &in.created)) {
		*hfunc = (CUfunction)in.created;
		return CUDA_SUCCESS;
	}
	o = shim_object_new(SHIM_FUNCTION, in.context, &in.created);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	in.name = (struct vg_bytes){ name, strlen(name) + 1 };
	o->function.module = in.module;
	r = ask_function(&in, o);
	if (r != CUDA_SUCCESS) {
		shim_object_recycle(SHIM_FUNCTION, in.created);
		return r;
	}
	shim_object_publish(o, in.created);
	*hfunc = (CUfunction)in.created;
	return CUDA_SUCCESS;
}

SHIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct vg_module_global_request in;
	struct vg_module_global_reply out;
	struct shim_range range;
	CUresult r = shim_enter(&in.context);

	if (r == CUDA_SUCCESS && (!name || !*name || (!dptr && !bytes)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = shim_module(hmod, &in.context, &in.module);
	if (r != CUDA_SUCCESS)
		return r;
	in.name = (struct vg_bytes){ name, strlen(name) + 1 };
	r = vg_send_module_global(&in, &out);
	if (r != CUDA_SUCCESS)
		return r;
	SHIM_TURN(turn, shim_turn_to_channel(shim_channel_of(in.context)));
	if (!shim_range_find(SHIM_RANGE_DEVICE, out.address, &range) || range.channel != shim_channel_of(in.context)) {
		range = (struct shim_range){ .start = out.address, .bytes = out.bytes, .context = in.context,
					     .module = in.module };
		r = shim_range_add(SHIM_RANGE_DEVICE, &range);
	}
	if (dptr)
		*dptr = out.address;
	if (bytes)
		*bytes = out.bytes;
	return r;
}

SHIM_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}
