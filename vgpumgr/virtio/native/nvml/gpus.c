/* SPDX-License-Identifier: Apache-2.0 */
/* The connections to the VM's slices, and what is asked over them. */
#include <codec.h>
#include <cuda.h>
#include <cuda_rules.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvml_guest.h"
#include "vg_interface.h"

static struct gpu gpus[GPUS_MAX];
static unsigned int count;
static int cuda_version;

static nvmlReturn_t of_errno(int error)
{
	switch (error) {
	case 0:
		return NVML_SUCCESS;
	case -ENOTCONN: /* no channel in this VM */
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case -EPROTO:
	case -EOPNOTSUPP: /* the host's worker does not have the operation */
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	case -EACCES:
	case -EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case -ENOMEM:
		return NVML_ERROR_MEMORY;
	default:
		return NVML_ERROR_GPU_IS_LOST;
	}
}

/* A call whose answer is `reply`, decoded by `read`. */
typedef void reader(struct vg_decoder *d, void *reply);

static nvmlReturn_t ask(struct vg_conn *conn, uint32_t op, const uint64_t *word, reader *read, void *reply)
{
	struct vg_frame frame;
	struct vg_reply answer;
	struct vg_decoder d;
	int error = vg_begin(conn, op, word ? sizeof(*word) : 0, VG_BULK_NONE, 0, &frame);

	if (error)
		return of_errno(error);
	if (word)
		memcpy(frame.payload, word, sizeof(*word));
	error = vg_call(conn, &frame, &answer);
	if (error)
		return of_errno(error);
	vg_decoder_init(&d, answer.data, answer.length);
	read(&d, reply);
	error = vg_decoder_end(&d) || answer.status;
	vg_reply_done(conn, &answer);
	return error ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

static void read_snapshot(struct vg_decoder *d, void *reply)
{
	vg_get_snapshot_reply(d, reply);
}

static void read_device(struct vg_decoder *d, void *reply)
{
	vg_get_device_snapshot_reply(d, reply);
}

static void read_use(struct vg_decoder *d, void *reply)
{
	vg_get_device_use_reply(d, reply);
}

/* ---- opening */

static void name_gpu(struct gpu *g)
{
	const uint8_t *u = g->is.uuid;

	snprintf(g->uuid, sizeof(g->uuid), "%s", vg_conn_device_name(g->conn));
	if (g->uuid[0])
		return;
	snprintf(g->uuid, sizeof(g->uuid), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* Blobs of the worker's are no text before they are ended here. */
static void end_text(uint8_t *text, size_t length, size_t room)
{
	text[length < room ? length : room - 1] = '\0';
}

static nvmlReturn_t describe(struct gpu *g)
{
	struct vg_snapshot_reply driver;
	const uint64_t first = 0;
	nvmlReturn_t status = ask(g->conn, VG_OP_snapshot, NULL, read_snapshot, &driver);

	if (status == NVML_SUCCESS)
		status = ask(g->conn, VG_OP_device_snapshot, &first, read_device, &g->is);
	if (status != NVML_SUCCESS)
		return status;
	cuda_version = (int)driver.driver_version;
	end_text(g->is.name, g->is.name_length, sizeof(g->is.name));
	end_text(g->is.pci_bus_id, g->is.pci_bus_id_length, sizeof(g->is.pci_bus_id));
	if (cuda_parse_pci_address((const char *)g->is.pci_bus_id, g->pci) != CUDA_SUCCESS)
		memset(g->pci, 0, sizeof(g->pci));
	name_gpu(g);
	return NVML_SUCCESS;
}

static nvmlReturn_t connect_gpu(struct gpu *g)
{
	nvmlReturn_t status = of_errno(vg_conn_open_device(&vg_interface, VGPUMGR_VERSION, g->index, &g->conn));

	if (status != NVML_SUCCESS)
		return status;
	status = describe(g);
	if (status != NVML_SUCCESS) {
		vg_conn_close(g->conn);
		g->conn = NULL;
	}
	return status;
}

nvmlReturn_t gpus_open(void)
{
	unsigned int there = 1;

	for (count = 0; count < there && count < GPUS_MAX; count++) {
		struct gpu *g = &gpus[count];
		nvmlReturn_t status;

		*g = (struct gpu){ .index = count };
		status = connect_gpu(g);
		if (status != NVML_SUCCESS) {
			gpus_close();
			return status;
		}
		there = vg_conn_devices(g->conn);
	}
	return NVML_SUCCESS;
}

void gpus_close(void)
{
	for (unsigned int i = 0; i < count; i++) {
		if (gpus[i].conn)
			vg_conn_close(gpus[i].conn);
		gpus[i].conn = NULL;
	}
	count = 0;
}

/* ---- asking */

unsigned int gpus_count(void)
{
	return count;
}

struct gpu *gpus_at(unsigned int index)
{
	return index < count ? &gpus[index] : NULL;
}

struct gpu *gpus_find(nvmlDevice_t device)
{
	for (unsigned int i = 0; i < count; i++)
		if ((void *)device == &gpus[i])
			return &gpus[i];
	return NULL;
}

int gpus_cuda_version(void)
{
	return cuda_version;
}

int gpu_attribute(const struct gpu *g, unsigned int attribute)
{
	int value = 0;

	if ((attribute + 1) * sizeof(value) <= g->is.attributes_length)
		memcpy(&value, g->is.attributes + attribute * sizeof(value), sizeof(value));
	return value;
}

/* A process may have several lanes; one that has allocated nothing is no user of memory. */
static void add(struct use *use, const struct vg_lane_use *lane)
{
	unsigned int i = 0;

	use->bytes += lane->memory_bytes;
	while (i < use->count && use->process[i].pid != lane->pid)
		i++;
	if (!lane->memory_bytes)
		return;
	use->process[i].pid = (unsigned int)lane->pid;
	use->process[i].bytes = lane->memory_bytes + (i < use->count ? use->process[i].bytes : 0);
	use->count += i == use->count;
}

/* The worker may have been started anew since: then there is another connection. */
nvmlReturn_t gpu_read_use(struct gpu *g, struct use *use)
{
	struct vg_device_use_reply reply;
	struct vg_lane_use lane;
	nvmlReturn_t status = NVML_ERROR_GPU_IS_LOST;

	if (g->conn && !vg_conn_lost(g->conn))
		status = ask(g->conn, VG_OP_device_use, NULL, read_use, &reply);
	if (status == NVML_ERROR_GPU_IS_LOST) {
		if (g->conn)
			vg_conn_close(g->conn);
		g->conn = NULL;
		status = connect_gpu(g);
		if (status == NVML_SUCCESS)
			status = ask(g->conn, VG_OP_device_use, NULL, read_use, &reply);
	}
	if (status != NVML_SUCCESS)
		return status == NVML_ERROR_DRIVER_NOT_LOADED ? NVML_ERROR_GPU_IS_LOST : status;
	*use = (struct use){ 0 };
	for (size_t at = 0; at + sizeof(lane) <= reply.processes_length; at += sizeof(lane)) {
		memcpy(&lane, reply.processes + at, sizeof(lane));
		add(use, &lane);
	}
	return NVML_SUCCESS;
}
