/* SPDX-License-Identifier: Apache-2.0 */
/* What QEMU gives the guest: the ivshmem PCI device and the virtio port, found by what they say they are. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent.h"

static int read_text(const char *path, char *text, size_t size)
{
	VG_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

static bool attribute_is(const char *directory, const char *name, const char *value)
{
	char path[AGENT_PATH + 64], text[32];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return !read_text(path, text, sizeof(text)) && !strcmp(text, value);
}

static int open_resource(const char *directory, const char *name)
{
	char path[AGENT_PATH + 64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int enable(const char *directory)
{
	char path[AGENT_PATH + 64];

	snprintf(path, sizeof(path), "%s/enable", directory);
	VG_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "1", 1) == 1 ? 0 : -errno;
}

/*
 * A VM may have other ivshmem devices, which look the same but for what is in their memory. Ours says so as soon as a
 * worker has written its header; until then there is nothing for us in it either.
 */
static bool memory_is_ours(const struct agent_ring *ring)
{
	struct vg_header *header = mmap(NULL, VG_PAGE, PROT_READ, MAP_SHARED, ring->memory_fd, 0);
	bool ours;

	if (header == MAP_FAILED)
		return false;
	ours = vg_load64(&header->magic) == VG_MAGIC && vg_load64(&header->size) == ring->size;
	munmap(header, VG_PAGE);
	return ours;
}

static int take_device(struct agent_ring *ring)
{
	struct stat st;

	if (enable(ring->device)) /* busy: it has a driver, so it is not ours */
		return -EIO;
	ring->memory_fd = open_resource(ring->device, "resource2");
	ring->doorbell_fd = open_resource(ring->device, "resource0");
	ring->doorbell_kind = VG_DOORBELL_BAR;
	/* the kernel found no room for the BAR (hot-plug behind a small bridge window): there is no resource file */
	if (ring->memory_fd < 0 || ring->doorbell_fd < 0 || fstat(ring->memory_fd, &st) || st.st_size < VG_PAGE)
		return -ENODEV;
	ring->size = (size_t)st.st_size;
	return memory_is_ours(ring) ? 0 : -ENODEV;
}

static void leave_device(struct agent_ring *ring)
{
	ring->device[0] = '\0';
	vg_close_fd(&ring->memory_fd);
	vg_close_fd(&ring->doorbell_fd);
}

/* Another ring of ours has it. */
static bool is_taken(const struct agent_ring *ring, const char *name)
{
	const struct agent *agent = ring->link.agent;

	for (unsigned i = 0; i < AGENT_CHANNELS; i++) {
		const char *slash = strrchr(agent->ring[i].device, '/');

		if (&agent->ring[i] != ring && slash && !strcmp(slash + 1, name))
			return true;
	}
	return false;
}

int agent_find_ivshmem(struct agent_ring *ring)
{
	static const char root[] = "/sys/bus/pci/devices";
	DIR *directory = opendir(root);
	struct dirent *entry;
	int error = -ENODEV;

	while (directory && error && (entry = readdir(directory))) {
		if (entry->d_name[0] == '.' || is_taken(ring, entry->d_name))
			continue;
		snprintf(ring->device, sizeof(ring->device), "%s/%.64s", root, entry->d_name);
		if (attribute_is(ring->device, "vendor", "0x1af4") &&
		    attribute_is(ring->device, "device", "0x1110"))
			error = take_device(ring);
		if (error)
			leave_device(ring);
	}
	if (directory)
		closedir(directory);
	return error;
}

/* ---- as QEMU would, for tests on one host ---- */

static int receive_hand_over(struct agent_ring *ring)
{
	static const int64_t expected[] = { 0, 0, -1, 1, 0 };
	struct stat st;

	for (unsigned i = 0; i < 5; i++) {
		int64_t number;
		int fd, error = vg_recv_fds(ring->server, &number, sizeof(number), &fd, 1);

		if (error || number != expected[i]) {
			vg_close_fd(&fd);
			return error ? error : -EPROTO;
		}
		if (i == 2)
			ring->memory_fd = fd;
		else if (i == 3)
			ring->doorbell_fd = fd;
		else
			vg_close_fd(&fd);
	}
	if (ring->memory_fd < 0 || ring->doorbell_fd < 0 || fstat(ring->memory_fd, &st))
		return -EPROTO;
	ring->size = (size_t)st.st_size;
	ring->doorbell_kind = VG_DOORBELL_EVENTFD;
	return 0;
}

int agent_join_server(struct agent_ring *ring)
{
	int error;

	ring->server = vg_connect(ring->ivshmem_socket);
	if (ring->server < 0)
		return ring->server;
	error = receive_hand_over(ring);
	if (error) {
		vg_close_fd(&ring->memory_fd);
		vg_close_fd(&ring->doorbell_fd);
		vg_close_fd(&ring->server);
	}
	return error;
}

/* ---- the port ---- */

/* The number in "org.vgpumgr.N"; negative: not such a port, or another of ours has it. */
static int read_number(const struct agent_serial *serial, const char *directory)
{
	const struct agent *agent = serial->link.agent;
	char path[AGENT_PATH + 64], text[64];
	unsigned number;
	int end = 0;

	snprintf(path, sizeof(path), "%s/name", directory);
	if (read_text(path, text, sizeof(text)) || sscanf(text, "org.vgpumgr.%4u%n", &number, &end) != 1 || text[end])
		return -1;
	for (unsigned i = 0; i < AGENT_CHANNELS; i++)
		if (agent->serial[i].fd >= 0 && agent->serial[i].link.number == number)
			return -1;
	return (int)number;
}

int agent_open_port(struct agent_serial *serial)
{
	static const char root[] = "/sys/class/virtio-ports";
	DIR *directory = opendir(root);
	struct dirent *entry;
	char path[AGENT_PATH];
	int fd = -ENODEV, number;

	while (directory && fd < 0 && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), "%s/%.64s", root, entry->d_name);
		if (entry->d_name[0] == '.' || (number = read_number(serial, path)) < 0)
			continue;
		serial->link.number = (uint32_t)number;
		snprintf(path, sizeof(path), "/dev/%.64s", entry->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	if (directory)
		closedir(directory);
	return fd;
}
