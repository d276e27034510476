/* SPDX-License-Identifier: Apache-2.0 */
/* What QEMU gives this VM: the ivshmem PCI device and the virtio port; and what its kernel offers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../transport/util.h"
#include "check.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0)
#endif

static bool read_word(const char *path, char *text, size_t size)
{
	VG_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return n >= 0;
}

static bool is_ivshmem(const struct check *check, const char *device)
{
	char path[CHECK_PATH], vendor[16], kind[16];

	check_path(check, path, "/sys/bus/pci/devices/%s/vendor", device);
	if (!read_word(path, vendor, sizeof(vendor)) || strcmp(vendor, "0x1af4"))
		return false;
	check_path(check, path, "/sys/bus/pci/devices/%s/device", device);
	return read_word(path, kind, sizeof(kind)) && !strcmp(kind, "0x1110");
}

/* Those with memory; cramped: for those without it the kernel found no room. */
static unsigned list_memory(const struct check *check, char text[CHECK_TEXT], unsigned *cramped)
{
	char path[CHECK_PATH];
	unsigned found = 0;
	struct dirent *entry;
	struct stat st;
	DIR *directory;

	check_path(check, path, "/sys/bus/pci/devices");
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		if (entry->d_name[0] == '.' || !is_ivshmem(check, entry->d_name))
			continue;
		check_path(check, path, "/sys/bus/pci/devices/%s/resource2", entry->d_name);
		if (stat(path, &st)) {
			++*cramped;
			continue;
		}
		found++;
		check_append(text, "%s (shared memory, %lld MiB)", entry->d_name, (long long)st.st_size >> 20);
	}
	if (directory)
		closedir(directory);
	return found;
}

static unsigned list_ports(const struct check *check, char text[CHECK_TEXT])
{
	char path[CHECK_PATH], name[64];
	unsigned found = 0;
	struct dirent *entry;
	DIR *directory;

	check_path(check, path, "/sys/class/virtio-ports");
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		check_path(check, path, "/sys/class/virtio-ports/%s/name", entry->d_name);
		if (entry->d_name[0] == '.' || !read_word(path, name, sizeof(name)) ||
		    strncmp(name, "org.vgpumgr.", strlen("org.vgpumgr.")))
			continue;
		found++;
		check_append(text, "port %s", name);
	}
	if (directory)
		closedir(directory);
	return found;
}

void check_channel(struct check *check)
{
	char text[CHECK_TEXT] = "";
	unsigned cramped = 0, memory = list_memory(check, text, &cramped), ports = list_ports(check, text);

	if (cramped && !ports)
		check_report(check, "channel", CHECK_PROBLEM,
			     "shut the VM down and start it; or on the host: vgpumgr attach VM --transport serial ...",
			     "the kernel of this VM has no room for the channel's memory");
	else if (memory || ports)
		check_report(check, "channel", CHECK_OK, NULL, "%s", text);
	else
		check_report(check, "channel", CHECK_PROBLEM,
			     "on the host: vgpumgr vm show VM; a slice that is there \"at the next start\" needs a shutdown of the VM",
			     "this VM has no device of a channel");
}

/* As cudaMallocManaged does, by trying; negative: refused. */
static int open_faults(void)
{
	int made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	VG_FD int device = made < 0 ? open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) : -1;

	return device < 0 ? made : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
}

void check_managed_memory(struct check *check)
{
	VG_FD int fd = open_faults();

	if (fd >= 0)
		check_report(check, "managed-memory", CHECK_OK, NULL, "cudaMallocManaged works here: userfaultfd opens");
	else
		check_report(check, "managed-memory", CHECK_WARNING,
			     "programs without cudaMallocManaged need nothing; else a kernel of 5.11 or later, and no seccomp profile that forbids userfaultfd",
			     "cudaMallocManaged is refused here: userfaultfd: %s", strerror(errno));
}
