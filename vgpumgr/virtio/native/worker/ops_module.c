/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: what is in modules, and launching it. Parameter sizes come from the driver's table, never from the guest. */
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "vg_worker.h"

enum { ATTRIBUTES = 16 };

/* Its functions and variables go with it. */
CUresult wk_do_module_unload(struct wk_call *c, const struct vg_module_unload_request *in)
{
	return wk_remove_later(c, WK_MODULE, in->module);
}

static CUresult read_parameters(CUfunction f, struct wk_parameter *p, uint32_t *count)
{
	CUresult r = CUDA_SUCCESS;
	size_t offset, size;

	for (*count = 0; *count < WK_PARAMETERS; (*count)++) {
		r = wk_driver.cuFuncGetParamInfo(f, *count, &offset, &size);
		if (r != CUDA_SUCCESS)
			break;
		p[*count] = (struct wk_parameter){ offset, size };
	}
	/* an index beyond the last is how the end is told */
	return r == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

static CUresult keep_function(struct wk_call *c, uint64_t handle, struct wk_object *module, CUfunction f,
			      struct vg_module_function_reply *out)
{
	struct wk_parameter table[WK_PARAMETERS];
	struct wk_object *o;
	uint32_t count;
	CUresult r = read_parameters(f, table, &count);

	if (r != CUDA_SUCCESS)
		return r;
	_Static_assert(sizeof(table) <= sizeof(out->parameters), "the reply holds every table");
	o = wk_object_new(WK_FUNCTION, module, f, count);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->parameters_count = count;
	memcpy(o->parameters, table, count * sizeof(*table));
	for (uint32_t i = 0; i < count; i++)
		if (table[i].offset + table[i].size > o->parameters_bytes)
			o->parameters_bytes = table[i].offset + table[i].size;
	out->parameters_length = count * sizeof(*table);
	memcpy(out->parameters, table, out->parameters_length);
	return wk_put(c, handle, o);
}

CUresult wk_do_module_function(struct wk_call *c, const struct vg_module_function_request *in,
			       struct vg_module_function_reply *out)
{
	struct wk_object *module WK_HELD = NULL;
	int attributes[ATTRIBUTES] = { 0 };
	CUfunction f;
	CUresult r = wk_hold(c, WK_MODULE, in->module, &module);

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuModuleGetFunction(&f, wk_raw(module), in->name.data);
	if (r != CUDA_SUCCESS)
		return r;
	wk_output_expect();
	for (int i = 0; i < ATTRIBUTES; i++)
		if (wk_driver.cuFuncGetAttribute(&attributes[i], i, f) != CUDA_SUCCESS)
			attributes[i] = 0;
	out->attributes_length = sizeof(attributes);
	memcpy(out->attributes, attributes, sizeof(attributes));
	return keep_function(c, in->created, module, f, out);
}

/* How many functions a module has; what it says is the code's, and so the guest's. */
enum { FUNCTIONS = 1 << 20, NAME_BYTES = 4096 };

static CUresult put_names(const CUfunction *functions, uint32_t count, uint32_t first, struct vg_module_functions_reply *out)
{
	const char *name;
	size_t length;
	CUresult r;

	for (uint32_t i = first; i < count; i++) {
		r = wk_driver.cuFuncGetName(&name, functions[i]);
		if (r != CUDA_SUCCESS)
			return r;
		length = strlen(name) + 1;
		if (length > NAME_BYTES) /* no call can have it: those before it are listed */
			return i > first ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
		if (length > sizeof(out->names) - out->names_length)
			break;
		memcpy(out->names + out->names_length, name, length);
		out->names_length += length;
	}
	return CUDA_SUCCESS;
}

CUresult wk_do_module_functions(struct wk_call *c, const struct vg_module_functions_request *in,
				struct vg_module_functions_reply *out)
{
	struct wk_object *module WK_HELD = NULL;
	CUfunction *functions;
	unsigned int count = 0;
	CUresult r = wk_hold(c, WK_MODULE, in->module, &module);

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuModuleGetFunctionCount(&count, wk_raw(module));
	if (r != CUDA_SUCCESS)
		return r;
	out->total = count;
	if (in->first >= count)
		return CUDA_SUCCESS;
	functions = count <= FUNCTIONS ? calloc(count, sizeof(*functions)) : NULL;
	if (!functions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = wk_driver.cuModuleEnumerateFunctions(functions, count, wk_raw(module));
	if (r == CUDA_SUCCESS)
		r = put_names(functions, count, in->first, out);
	free(functions);
	return r;
}

CUresult wk_do_module_global(struct wk_call *c, const struct vg_module_global_request *in,
			     struct vg_module_global_reply *out)
{
	struct wk_object *module WK_HELD = NULL;
	CUdeviceptr address = 0;
	size_t bytes = 0;
	CUresult r = wk_hold(c, WK_MODULE, in->module, &module);

	if (r == CUDA_SUCCESS)
		r = wk_driver.cuModuleGetGlobal_v2(&address, &bytes, wk_raw(module), in->name.data);
	if (r == CUDA_SUCCESS)
		r = wk_ledger_add(c, module, address, bytes);
	out->address = address;
	out->bytes = bytes;
	return r;
}

/* An attribute for each that is asked for; returns how many. */
static unsigned int fill_attributes(CUlaunchAttribute attributes[2], bool cooperative, const unsigned int cluster[3])
{
	unsigned int n = 0;

	if (cluster[0])
		attributes[n++] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
						       .value.clusterDim = { cluster[0], cluster[1], cluster[2] } };
	if (cooperative)
		attributes[n++] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	return n;
}

static CUresult launch(struct wk_call *c, const struct vg_launch_request *in, const unsigned int cluster[3])
{
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config;
	struct wk_object *function WK_HELD = NULL, *stream WK_HELD = NULL;
	void *parameters[WK_PARAMETERS];
	CUresult r = wk_hold(c, WK_FUNCTION, in->function, &function);

	if (r == CUDA_SUCCESS)
		r = wk_hold(c, WK_STREAM, in->stream, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (in->parameters.length != function->parameters_bytes || in->cooperative > 1)
		return CUDA_ERROR_INVALID_VALUE;
	r = wk_capture_note(c, function, 0);
	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; i < function->parameters_count; i++)
		parameters[i] = (uint8_t *)in->parameters.data + function->parameters[i].offset;
	if (cluster[0]) {
		config = (CUlaunchConfig){ in->grid_x, in->grid_y, in->grid_z, in->block_x, in->block_y, in->block_z,
					   in->shared_bytes, wk_raw(stream), attributes, 0 };
		config.numAttrs = fill_attributes(attributes, in->cooperative, cluster);
		return wk_driver.cuLaunchKernelEx(&config, wk_raw(function), parameters, NULL);
	}
	if (in->cooperative)
		return wk_driver.cuLaunchCooperativeKernel(wk_raw(function), in->grid_x, in->grid_y, in->grid_z,
							   in->block_x, in->block_y, in->block_z, in->shared_bytes,
							   wk_raw(stream), parameters);
	return wk_driver.cuLaunchKernel(wk_raw(function), in->grid_x, in->grid_y, in->grid_z, in->block_x,
					in->block_y, in->block_z, in->shared_bytes, wk_raw(stream), parameters, NULL);
}

CUresult wk_do_launch(struct wk_call *c, const struct vg_launch_request *in)
{
	static const unsigned int none[3];

	return launch(c, in, none);
}

CUresult wk_do_launch_clusters(struct wk_call *c, const struct vg_launch_clusters_request *in)
{
	const unsigned int cluster[] = { in->cluster_x, in->cluster_y, in->cluster_z };
	struct vg_launch_request plain = {
		.context = in->context,
		.function = in->function,
		.grid_x = in->grid_x,
		.grid_y = in->grid_y,
		.grid_z = in->grid_z,
		.block_x = in->block_x,
		.block_y = in->block_y,
		.block_z = in->block_z,
		.shared_bytes = in->shared_bytes,
		.cooperative = in->cooperative,
		.stream = in->stream,
		.parameters = in->parameters,
	};

	return cluster[0] ? launch(c, &plain, cluster) : CUDA_ERROR_INVALID_VALUE;
}

CUresult wk_do_occupancy_clusters(struct wk_call *c, const struct vg_occupancy_clusters_request *in,
				  struct vg_occupancy_clusters_reply *out)
{
	const unsigned int cluster[] = { in->cluster_x, in->cluster_y, in->cluster_z };
	struct wk_object *function WK_HELD = NULL;
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = { in->grid_x, in->grid_y, in->grid_z, in->block_x, in->block_y, in->block_z,
				  in->shared_bytes, NULL, attributes, 0 };
	CUresult r = wk_hold(c, WK_FUNCTION, in->function, &function);
	int value = 0;

	if (r != CUDA_SUCCESS)
		return r;
	config.numAttrs = fill_attributes(attributes, false, cluster);
	r = (in->count ? wk_driver.cuOccupancyMaxActiveClusters : wk_driver.cuOccupancyMaxPotentialClusterSize)(
		&value, wk_raw(function), &config);
	out->value = (uint32_t)value;
	return r;
}

/* Bulk stands in memory that the guest may be changing: the driver gets a copy. */
CUresult wk_do_launch_large(struct wk_call *c, const struct vg_launch_large_request *in)
{
	size_t length = c->call->bulk_in_length;
	void *parameters = length <= WK_PARAMETERS_BYTES ? malloc(length) : NULL;
	struct vg_launch_request launch = {
		.context = in->context,
		.function = in->function,
		.grid_x = in->grid_x,
		.grid_y = in->grid_y,
		.grid_z = in->grid_z,
		.block_x = in->block_x,
		.block_y = in->block_y,
		.block_z = in->block_z,
		.shared_bytes = in->shared_bytes,
		.cooperative = in->cooperative,
		.stream = in->stream,
		.parameters = { parameters, length },
	};
	CUresult r;

	if (!parameters)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(parameters, c->call->bulk_in, length);
	r = wk_do_launch(c, &launch);
	free(parameters);
	return r;
}
