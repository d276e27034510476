/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest: scribble ring SECONDS SEED | scribble serial BYTES SEED | scribble as UID COMMAND... | scribble spy WORD.
 * ring: maps the shared memory behind the agent's back and overwrites random words of it for some seconds.
 * serial: writes random bytes to the channel's virtio-serial port (the agent must not have it open).
 * as: runs a program as another user.
 * spy: looks for a word in all that the agent gives a process, and tries to open the device and other processes' memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../../vgpumgr/virtio/native/generated/vg_ops.h"
#include "../../../vgpumgr/virtio/native/transport/wire.h"

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned read_id(const char *device, const char *name)
{
	char path[512];
	unsigned value = 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", device, name);
	FILE *f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%x", &value) != 1)
			value = 0;
		fclose(f);
	}
	return value;
}

static int open_shared_memory(void)
{
	DIR *dir = opendir("/sys/bus/pci/devices");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[512];
		if (read_id(e->d_name, "vendor") != 0x1af4 || read_id(e->d_name, "device") != 0x1110)
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource2", e->d_name);
		closedir(dir);
		return open(path, O_RDWR | O_CLOEXEC);
	}
	return -1;
}

static int scribble_ring(int seconds)
{
	struct stat st;
	int fd = open_shared_memory();
	if (fd < 0 || fstat(fd, &st) < 0) {
		perror("shared memory");
		return 1;
	}
	volatile uint32_t *words = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	uint64_t count = (uint64_t)st.st_size / 4, written = 0;
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		for (int i = 0; i < 4096; i++, written++) {
			/* most of the harm can be done in the first pages, where headers and indices are */
			uint64_t range = next_random() % 4 ? 65536 / 4 : count;
			words[next_random() % range] = (uint32_t)next_random();
		}
	}
	printf("scribbled %llu words\n", (unsigned long long)written);
	return 0;
}

static int scribble_serial(long bytes)
{
	int fd = open("/dev/virtio-ports/org.vgpumgr.0", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		perror("port");
		return 1;
	}
	for (long done = 0; done < bytes;) {
		uint64_t block[64];
		for (int i = 0; i < 64; i++)
			block[i] = next_random();
		ssize_t n = write(fd, block, sizeof(block));
		if (n <= 0)
			break; /* the host hung up: that is an end, too */
		done += n;
	}
	printf("wrote garbage\n");
	return 0;
}

/* A lane as any process gets one; its descriptors. Negative: none. */
static int take_lane(int fds[VG_AGENT_FDS], struct vg_agent_answer *answer)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION, .name = "spy" };
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = VG_AGENT_SOCKET };
	char control[CMSG_SPACE(sizeof(int) * VG_AGENT_FDS)];
	struct iovec piece = { answer, sizeof(*answer) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	int agent = socket(AF_UNIX, SOCK_STREAM, 0);

	if (connect(agent, (struct sockaddr *)&address, sizeof(address)) ||
	    write(agent, &request, sizeof(request)) != sizeof(request) ||
	    recvmsg(agent, &message, 0) != sizeof(*answer) || answer->error || !CMSG_FIRSTHDR(&message))
		return -1;
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int) * VG_AGENT_FDS);
	return 0;
}

static void look_into(int fd, size_t size, uint64_t word)
{
	const uint64_t *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	size_t found = 0;

	for (size_t i = 0; memory != MAP_FAILED && i < size / 8; i++)
		found += memory[i] == word;
	printf("found %zu words in %zu bytes\n", found, size);
}

static void try_to_open(const char *path)
{
	int fd = open(path, O_RDONLY);

	printf("%s %s\n", fd < 0 ? "refused" : "opened", path);
}

static int spy(uint64_t word)
{
	struct vg_agent_answer answer;
	int fds[VG_AGENT_FDS];
	DIR *dir = opendir("/proc");
	char path[512];

	printf("%s\n", open_shared_memory() < 0 && errno == EACCES ? "refused the device" : "opened the device");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%s/mem", e->d_name);
		try_to_open(path);
	}
	if (take_lane(fds, &answer))
		return 1;
	look_into(fds[0], answer.memory_size, word);
	return 0;
}

static int run_as(uid_t user, char **command)
{
	if (setgroups(0, NULL) || setgid(user) || setuid(user))
		return 1;
	execvp(command[0], command);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc > 3 && strcmp(argv[1], "as") == 0)
		return run_as((uid_t)atoi(argv[2]), argv + 3);
	if (argc == 3 && strcmp(argv[1], "spy") == 0)
		return spy(strtoull(argv[2], NULL, 0));
	if (argc != 4)
		return 2;
	state = strtoull(argv[3], NULL, 0) | 1;
	return strcmp(argv[1], "ring") == 0 ? scribble_ring(atoi(argv[2])) : scribble_serial(atol(argv[2]));
}
