/* SPDX-License-Identifier: Apache-2.0 */
/* Talks to the machine's driver: a file of its root stands for the driver's device, a line for a request. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "amdsmi_sim.h"

static int driver_path(char *path, size_t size)
{
	const char *root = getenv("VGPUMGR_SYSFS_ROOT");

	if (!root || (size_t)snprintf(path, size, "%s/.sim/gim", root) >= size)
		return -ENOENT;
	return 0;
}

static uint64_t pack_bdf(unsigned int domain, unsigned int bus, unsigned int device, unsigned int function)
{
	return (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
}

/* "gpu ADDRESS SUPPORTED" begins a GPU, "vf ADDRESS OFFSET SIZE" is one of its virtual functions */
static void read_line(struct sim_gpus *gpus, const char *line)
{
	unsigned int domain, bus, device, function, first, second;
	struct sim_gpu *gpu = gpus->count ? &gpus->gpus[gpus->count - 1] : NULL;

	if (sscanf(line, "gpu %x:%x:%x.%x %u", &domain, &bus, &device, &function, &first) == 5) {
		if (gpus->count == SIM_MAX_GPUS)
			return;
		gpu = &gpus->gpus[gpus->count++];
		gpu->bdf = pack_bdf(domain, bus, device, function);
		gpu->supported = first;
	} else if (gpu && gpu->enabled < SIM_MAX_VFS &&
		   sscanf(line, "vf %x:%x:%x.%x %u %u", &domain, &bus, &device, &function, &first, &second) == 6) {
		gpu->vfs[gpu->enabled++] = (struct sim_vf){
			.bdf = pack_bdf(domain, bus, device, function), .fb_offset = first, .fb_size = second };
	}
}

int sim_read_gpus(struct sim_gpus *gpus)
{
	char path[4096], line[256];
	int ret = driver_path(path, sizeof(path));
	FILE *file = ret ? NULL : fopen(path, "re");

	if (!file)
		return ret ? ret : -errno;
	memset(gpus, 0, sizeof(*gpus));
	while (fgets(line, sizeof(line), file))
		read_line(gpus, line);
	fclose(file);
	return 0;
}

int sim_set_vfs(uint64_t bdf, uint32_t count)
{
	char path[4096], line[64];
	int ret = driver_path(path, sizeof(path));
	int fd = ret ? -1 : open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return ret ? ret : -errno;
	snprintf(line, sizeof(line), "%04x:%02x:%02x.%x %" PRIu32, (unsigned int)(bdf >> 16),
		 (unsigned int)(bdf >> 8 & 0xff), (unsigned int)(bdf >> 3 & 31), (unsigned int)(bdf & 7), count);
	/* one write, which is one request */
	ret = write(fd, line, strlen(line)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}
