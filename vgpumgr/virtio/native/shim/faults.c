/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int descriptor = -1;

/* With the right to it also for faults of system calls, else for the program's own alone. */
static int open_faults(void)
{
	int made = -1, device, fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0)
		return fd;
#ifdef USERFAULTFD_IOC_NEW
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device >= 0) {
		made = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
		close(device);
	}
#else
	(void)device;
#endif
#ifdef UFFD_USER_MODE_ONLY
	if (made < 0)
		made = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
#endif
	return made;
}

static int prepare(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = open_faults();

	if (fd >= 0 && !ioctl(fd, UFFDIO_API, &api))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

bool faults_possible(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool tried;

	pthread_mutex_lock(&lock);
	if (!tried)
		descriptor = prepare();
	tried = true;
	pthread_mutex_unlock(&lock);
	return descriptor >= 0;
}

bool faults_map(uint64_t start, uint64_t bytes)
{
	struct uffdio_register all = { .range = { start, bytes },
				       .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP };
	void *at = mmap((void *)start, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == MAP_FAILED)
		return false;
	/* before Linux 4.17 the address is a wish */
	if (at == (void *)start && !madvise(at, bytes, MADV_NOHUGEPAGE) && !madvise(at, bytes, MADV_DONTFORK) &&
	    !ioctl(descriptor, UFFDIO_REGISTER, &all))
		return true;
	munmap(at, bytes);
	return false;
}

void faults_unmap(uint64_t start, uint64_t bytes)
{
	munmap((void *)start, bytes);
	faults_wake(start, bytes);
}

void faults_forbid(uint64_t start, uint64_t bytes)
{
	struct uffdio_range all = { start, bytes };

	mprotect((void *)start, bytes, PROT_NONE);
	ioctl(descriptor, UFFDIO_UNREGISTER, &all);
	faults_wake(start, bytes);
}

bool faults_drop(uint64_t start, uint64_t bytes)
{
	if (madvise((void *)start, bytes, MADV_DONTNEED))
		return false;
	faults_wake(start, bytes);
	return true;
}

bool faults_protect(uint64_t start, uint64_t bytes, bool on)
{
	struct uffdio_writeprotect change = { { start, bytes }, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	while (ioctl(descriptor, UFFDIO_WRITEPROTECT, &change))
		if (errno != EAGAIN)
			return false;
	return true;
}

void faults_wake(uint64_t start, uint64_t bytes)
{
	struct uffdio_range range = { start, bytes };

	ioctl(descriptor, UFFDIO_WAKE, &range);
}

bool faults_fill(uint64_t start, const void *from, uint64_t bytes, bool protected)
{
	uint64_t done = 0;

	while (done < bytes) {
		struct uffdio_copy copy = { .dst = start + done, .src = (uint64_t)from + done, .len = bytes - done,
					    .mode = UFFDIO_COPY_MODE_DONTWAKE | (protected ? UFFDIO_COPY_MODE_WP : 0) };

		if (!ioctl(descriptor, UFFDIO_COPY, &copy))
			break;
		if (copy.copy > 0)
			done += (uint64_t)copy.copy;
		else if (copy.copy == -EEXIST)
			done += FAULTS_PAGE;
		else if (copy.copy != -EAGAIN)
			return false;
	}
	faults_wake(start, bytes);
	return true;
}

bool faults_next(struct fault *fault)
{
	struct uffd_msg message;
	ssize_t n;

	do {
		n = read(descriptor, &message, sizeof(message));
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return false;
	} while (n != (ssize_t)sizeof(message) || message.event != UFFD_EVENT_PAGEFAULT);
	fault->page = message.arg.pagefault.address & ~(uint64_t)(FAULTS_PAGE - 1);
	fault->protected = message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP;
	fault->writes = fault->protected || message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE;
	return true;
}
