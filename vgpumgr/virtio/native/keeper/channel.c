/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory and its hand-over: QEMU's documented ivshmem server protocol (docs/specs/ivshmem-spec.txt). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "keeper.h"

enum { IVSHMEM_PROTOCOL = 0, QEMU_ID = 0, OUR_ID = 1 };

static int sealed_memory(uint64_t size)
{
	VG_FD int fd = memfd_create("vgpumgr-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int result;

	if (fd < 0 || ftruncate(fd, (off_t)size) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	result = fd;
	fd = -1;
	return result;
}

static void drop_memory(struct keeper *keeper)
{
	if (keeper->memory)
		munmap(keeper->memory, keeper->layout.size);
	keeper->memory = NULL;
	vg_close_fd(&keeper->memory_fd);
	vg_close_fd(&keeper->doorbell);
}

int keeper_make_memory(struct keeper *keeper)
{
	void *memory;
	int fd;

	drop_memory(keeper);
	if (vg_layout(keeper->next_size, &keeper->layout))
		return -EINVAL;
	fd = sealed_memory(keeper->next_size);
	if (fd < 0)
		return fd;
	keeper->memory_fd = fd;
	memory = mmap(NULL, keeper->next_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	keeper->memory = memory;
	keeper->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return keeper->doorbell < 0 ? -errno : 0;
}

int keeper_set_size(struct keeper *keeper, uint64_t size)
{
	struct vg_layout layout;
	int error = vg_layout(size, &layout);

	if (error)
		return error;
	keeper->next_size = size;
	if (keeper->qemu >= 0 || size == keeper->layout.size)
		return 0;
	error = keeper_make_memory(keeper);
	if (!error)
		keeper_stop_worker(keeper);
	return error;
}

static int send_number(int fd, int64_t number, int with)
{
	return vg_send_fds(fd, &number, sizeof(number), &with, with >= 0);
}

static int hand_over(struct keeper *keeper, int fd)
{
	/* QEMU never rings us through this one's interrupts; it wants an eventfd of its own for each vector */
	VG_FD int own = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int error;

	if (own < 0)
		return -errno;
	error = send_number(fd, IVSHMEM_PROTOCOL, -1);
	if (!error)
		error = send_number(fd, QEMU_ID, -1);
	if (!error)
		error = send_number(fd, -1, keeper->memory_fd);
	if (!error)
		error = send_number(fd, OUR_ID, keeper->doorbell);
	if (!error)
		error = send_number(fd, QEMU_ID, own);
	return error;
}

/* One QEMU at a time: a second connection would be a second VM on the same memory. */
void keeper_accept_qemu(struct keeper *keeper)
{
	struct ucred peer = { 0 };
	socklen_t length = sizeof(peer);
	VG_FD int fd = accept4(keeper->ivshmem, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	keeper_watch_qemu(keeper);
	if (keeper->qemu >= 0 || keeper->stopping || !keeper->memory)
		return;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
	if (hand_over(keeper, fd))
		return;
	keeper->qemu = fd;
	keeper->qemu_pid = peer.pid;
	keeper->qemu_uid = peer.uid;
	keeper->qemu_connects++;
	fd = -1;
}

/* QEMU sends nothing; its end is the VM's (or the device's) end: memory and worker have served their tenant. */
void keeper_watch_qemu(struct keeper *keeper)
{
	char byte[64];
	ssize_t n;

	if (keeper->qemu < 0)
		return;
	n = recv(keeper->qemu, byte, sizeof(byte), MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	vg_close_fd(&keeper->qemu);
	keeper->qemu_pid = 0;
	keeper_mark_lost(keeper);
	if (keeper_make_memory(keeper))
		snprintf(keeper->error, sizeof(keeper->error), "cannot make new memory: %s", strerror(errno));
	keeper_stop_worker(keeper);
}
