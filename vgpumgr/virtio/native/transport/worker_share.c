/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_share.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "util.h"

enum { LOOK_NS = 20 * 1000000 }; /* a wait looks so often whether its lane has closed */

struct vg_share_page *vg_share_page;
struct vg_share_row *vg_share_row;
static struct vg_share_page *mapped;
static int page_fd = -1, bell_fd = -1;

static int map(void)
{
	void *memory = mmap(NULL, VG_SHARE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	mapped = memory;
	return 0;
}

static bool read_option(const char *word, const char *option)
{
	return !strncmp(word, option, strlen(option)) &&
	       sscanf(word + strlen(option), "page:%d,bell:%d", &page_fd, &bell_fd) == 2;
}

int vg_share_open(int argc, char **argv)
{
	bool found = false;

	for (int i = 1; i < argc; i++)
		found |= read_option(argv[i], VG_OPTION_SHARE);
	for (int i = 1; i < argc; i++) /* a session has both */
		found |= read_option(argv[i], VG_OPTION_SESSION_SHARE);
	return found ? map() : 0;
}

bool vg_share_fds(int *page, int *bell)
{
	*page = page_fd;
	*bell = bell_fd;
	return mapped;
}

void vg_share_use(uint32_t lane)
{
	vg_share_page = mapped;
	vg_share_row = mapped ? &mapped->row[lane] : NULL;
	vg_close_fd(&page_fd);
}

void vg_share_ring(void)
{
	while (send(bell_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

void vg_share_drop(uint32_t lane)
{
	struct vg_share_row *row = mapped ? &mapped->row[lane] : NULL;

	if (!row)
		return;
	atomic_store(&row->work, 0);
	atomic_store(&row->wants, 0);
	atomic_store(&row->busy, 0);
	vg_share_ring();
}

void vg_share_sleep(uint32_t turn, uint64_t ns)
{
	struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, &vg_share_page->turn, FUTEX_WAIT, turn, &limit, NULL, 0);
}

bool vg_share_wait(bool (*closing)(const void *), const void *argument)
{
	bool open;

	if (!atomic_fetch_add(&vg_share_row->wants, 1))
		vg_share_ring();
	while (!(open = vg_load32(&vg_share_page->turn) != VG_TURN_CLOSED) && !closing(argument))
		vg_share_sleep(VG_TURN_CLOSED, LOOK_NS);
	atomic_fetch_sub(&vg_share_row->wants, 1);
	if (!open)
		vg_share_ring();
	return open;
}
